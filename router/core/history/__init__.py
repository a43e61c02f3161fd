"""What happened in the last minutes, hour and day, as counts in steps of time."""
