"""Spans of requests, for an OpenTelemetry collector. Imported where tracing is on: its packages are an extra."""
