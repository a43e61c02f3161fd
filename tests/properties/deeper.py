"""How much state machines play: some in every run, much where `make fuzz` asks for it."""

from __future__ import annotations

from hypothesis import settings

DEEPER = 100
"""Times the runs of `fast` that `deep` makes."""


def runs(fast: int, steps: int = 40) -> settings:
    """Return settings for `fast` runs of so many steps; in the profile `deep`, for many more that are longer."""
    deep = settings.get_current_profile_name() == "deep"
    return settings(
        max_examples=fast * (DEEPER if deep else 1), stateful_step_count=steps * (2 if deep else 1), deadline=None
    )
