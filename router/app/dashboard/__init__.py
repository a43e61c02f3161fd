"""The page at the admin port's `/`: how much came from cache, what was lost, and why."""
