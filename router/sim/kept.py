"""What an engine keeps between turns beyond vLLM's prefix cache: pinned sessions, a tier beside the GPU, or neither."""

from __future__ import annotations

from collections.abc import Sequence

from router.sim.blocks import BlockPool
from router.sim.pins import PinRules, Pins
from router.sim.tier import Tier


class Kept:
    """Is told of an engine's requests; hashes are those of a request's blocks, in order."""

    __slots__ = ("_pins", "_tier")

    def __init__(self, pool: BlockPool, tier: Tier | None = None, rules: PinRules | None = None) -> None:
        self._tier = tier
        self._pins = Pins(pool, rules) if rules else None

    @property
    def own_blocks(self) -> int:
        """Blocks that a tier of this engine alone holds at most."""
        return 0 if self._tier is None or self._tier.shared else self._tier.capacity_blocks

    def expire(self, now: float) -> None:
        """Time has passed."""
        if self._pins is not None:
            self._pins.expire(now)

    def make_room(self) -> bool:
        """Let go of the oldest pin; False where there is none."""
        return self._pins is not None and self._pins.yield_oldest()

    def loaded_blocks(self, hashes: Sequence[int], first: int, limit_blocks: int) -> int:
        """Return how many blocks behind the `first`, which the GPU holds, come from the tier; a turn begins."""
        if self._pins is not None:
            self._pins.resume(hashes)
        return 0 if self._tier is None else self._tier.found(hashes, first, limit_blocks)

    def load_s(self, tokens: int) -> float:
        """Return how long loading takes."""
        return 0.0 if self._tier is None else tokens / self._tier.load_tokens_per_s

    def filled(self, hashes: Sequence[int], blocks: int) -> None:
        """The leading blocks of a request have their content."""
        if self._tier is not None:
            self._tier.hold(hashes[:blocks])

    def ended(self, hashes: Sequence[int], now: float) -> None:
        """A request ended by itself, and its blocks are free."""
        if self._pins is not None:
            self._pins.pin(hashes, now)
