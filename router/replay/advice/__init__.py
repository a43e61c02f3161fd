"""What to keep between a session's turns, by arithmetic and by replay."""
