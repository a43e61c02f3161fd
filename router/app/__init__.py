"""Everything that names concrete things: settings, wiring, command line, public and admin HTTP API."""
