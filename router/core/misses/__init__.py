"""Why a turn missed: what of its history was computed again, and what changed since the turn before."""
