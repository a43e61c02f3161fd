"""The data-parallel ranks of one simulated vLLM: engines with caches of their own behind one HTTP server."""

from __future__ import annotations

from router.sim.driver import EngineDriver
from router.sim.errors import Refusal
from router.sim.meters import RequestMeters

RANK_HEADER = b"x-data-parallel-rank"


class Rank:
    """One engine, and the histograms of its requests."""

    def __init__(self, driver: EngineDriver, max_model_len: int) -> None:
        self.driver = driver
        self.meters = RequestMeters(max_model_len)
        self._max_model_len = max_model_len

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return self.driver.engine.waiting + self.driver.engine.running

    def restart(self) -> None:
        """Begin again, cold and with all counts at 0."""
        self.driver.restart()
        self.meters = RequestMeters(self._max_model_len)


class Ranks:
    """All ranks of an engine. vLLM 0.32: v1/engine/core_client.py, v1/engine/input_processor.py."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.all = ranks
        self._first = 0

    def asked_for(self, header: bytes | None) -> Rank:
        """Return the rank that a request's header asks for; one that is no number asks for none.

        Raises:
            Refusal: there is no such rank.
        """
        try:
            asked = int(header or b"")
        except ValueError:
            return self.least_loaded()
        if not 0 <= asked < len(self.all):
            raise Refusal(f"data_parallel_rank {asked} is out of range [0, {len(self.all)}).")
        return self.all[asked]

    def least_loaded(self) -> Rank:
        """Return the rank with the fewest requests. Equals take turns."""
        count, first = len(self.all), self._first
        self._first = (first + 1) % count
        return min((self.all[(first + step) % count] for step in range(count)), key=lambda rank: rank.load)
