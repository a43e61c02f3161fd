"""The admin port: what operators see and change."""
