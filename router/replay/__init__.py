"""Offline: recorded or generated traffic through the router's core and simulated engines, event by event."""
