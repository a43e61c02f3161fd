"""What plugs in at the ports: engines to be read, a store to be shared, metrics and logs to be written."""
