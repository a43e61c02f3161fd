"""What plugs in at the ports: engines to be read, metrics and logs to be written."""
