"""`warmroute health`: whether a router or an engine is well, in an exit code. Containers run it every few seconds."""
