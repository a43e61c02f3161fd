"""Recordings: what traffic was like, as keyed hashes and numbers, in a file that can be replayed."""
