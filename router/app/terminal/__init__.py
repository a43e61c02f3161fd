"""What `warmroute top` and `warmroute explain` show in a terminal, of a router's admin API and of request bodies."""
