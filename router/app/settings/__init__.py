"""What can be set, from where, and how it is shown."""
