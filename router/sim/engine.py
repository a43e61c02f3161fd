"""One simulated vLLM engine: scheduler, prefill, decode and block cache. No clock, no chance: the caller says `now`.

Prefill is one line served in order of arrival. Decode is processor sharing: a step counter grows at
1 / (decode_s + decode_per_seq_s * decoding sequences) steps per second and every decoding sequence gains one token a
step, so the next token to tell is the top of a heap on that counter, and an hour of traffic is a few events a request.
"""

from __future__ import annotations

import heapq
from collections import deque
from math import ceil

from router.sim.blocks import BlockPool
from router.sim.kept import Kept
from router.sim.live import LiveRequest
from router.sim.types import DoesNotFit, EngineConfig, EngineStats, Event, Finished, SimRequest, Tokens

__all__ = ["DoesNotFit", "Engine", "EngineConfig", "EngineStats", "Event", "Finished", "SimRequest", "Tokens"]


class Engine:
    """Submit, advance, abort. Times are monotonic seconds; a `now` before an earlier one counts as the earlier one."""

    def __init__(self, config: EngineConfig, pool: BlockPool | None = None, kept: Kept | None = None) -> None:
        """`pool`: a cache that several engines have together; each has its own without it. `kept`: made with `pool`."""
        self.config = config
        self.stats = EngineStats()
        self.pool = pool or BlockPool(config.num_blocks)
        self.kept = kept or Kept(self.pool)
        self._requests: dict[str, LiveRequest] = {}
        self._line: deque[LiveRequest] = deque()
        self._admitted: dict[str, LiveRequest] = {}
        self._prefilling: LiveRequest | None = None
        self._prefill_left_tokens = 0.0
        self._decoding = 0
        self._steps = 0.0
        self._now_s = self._synced_s = float("-inf")
        self._heap: list[tuple[float, int, int, LiveRequest]] = []
        self._order = 0
        self._told: list[Event] = []

    @property
    def running(self) -> int:
        """Requests that hold blocks: decoding ones and the one in prefill (vLLM's num_requests_running)."""
        return len(self._admitted)

    @property
    def waiting(self) -> int:
        """Requests in line, preempted ones included (vLLM's num_requests_waiting)."""
        return len(self._line)

    @property
    def kv_usage_ratio(self) -> float:
        """Blocks held by live requests over all usable ones, 0 to 1."""
        return self.pool.used_ratio

    def submit(self, request: SimRequest, now: float) -> bool:
        """Put a request in line; False when the line is full and the request was refused.

        Raises:
            DoesNotFit: prompt plus output exceed `config.capacity_tokens`, or the prompt is empty.
            ValueError: a live request has this id.
        """
        if request.request_id in self._requests:
            raise ValueError(f"request {request.request_id!r} is live already")
        now = self._run_to(now)
        live = LiveRequest(request, self.config.block_tokens, now)
        if not live.prompt_tokens or live.slots_tokens > self.config.capacity_tokens:
            raise DoesNotFit(
                f"{live.prompt_tokens} prompt and {live.output_tokens} output tokens, room for 1 to "
                f"{self.config.capacity_tokens}"
            )
        self._line.append(live)
        self._admit(now)
        limit = self.config.max_num_queued_reqs
        if limit is not None and len(self._line) > limit and self._line[-1] is live:
            self._line.pop()
            self.stats.rejected += 1
            return False
        self._requests[request.request_id] = live
        return True

    def abort(self, request_id: str, now: float) -> None:
        """Free a live request's blocks, tail first; nothing more is heard of it. An unknown id is no error."""
        now = self._run_to(now)
        self._told = [event for event in self._told if event.request_id != request_id]
        live = self._requests.pop(request_id, None)
        if live is None:
            return
        self.stats.aborted += 1
        if request_id in self._admitted:
            self._withdraw(live, now)
        else:
            self._line.remove(live)
        self._admit(now)

    def next_event_s(self) -> float | None:
        """When `advance` next has something to do; None when nothing is under way."""
        if self._told:
            return self._told[0].at_s
        return min((at_s for at_s in (self._next_token_s(), self._prefill_end_s()) if at_s is not None), default=None)

    def advance(self, now: float) -> list[Event]:
        """Return what happened up to and including `now`, in order of time."""
        self._admit(self._run_to(now))  # a shared pool may have room by now
        told, self._told = self._told, []
        return told

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; False, and nothing changes, while a request holds any."""
        return self.pool.reset()

    # Time

    def _run_to(self, now: float) -> float:
        self._now_s = now = max(now, self._now_s)
        while self._fire_next(now):
            pass
        return now

    def _fire_next(self, until_s: float) -> bool:
        token_s, prefill_s = self._next_token_s(), self._prefill_end_s()
        if token_s is not None and (prefill_s is None or token_s <= prefill_s):
            if token_s > until_s:
                return False
            _, _, generated, live = heapq.heappop(self._heap)
            self._take_token(live, generated, token_s)
            return True
        if prefill_s is None or prefill_s > until_s:
            return False
        self._end_prefill(prefill_s)
        return True

    def _next_token_s(self) -> float | None:
        heap = self._heap
        while heap and heap[0][3].order != heap[0][1]:
            heapq.heappop(heap)
        if not heap:
            return None
        return self._synced_s + max(0.0, heap[0][0] - self._steps) * self._step_s()

    def _prefill_end_s(self) -> float | None:
        if self._prefilling is None:
            return None
        return self._synced_s + self._prefill_left_tokens * self._prefill_token_s()

    def _step_s(self) -> float:
        return self.config.decode_s + self.config.decode_per_seq_s * self._decoding

    def _prefill_token_s(self) -> float:
        return (1 + self._decoding * self.config.prefill_slowdown_per_seq) / self.config.prefill_tokens_per_s

    def _sync(self, at_s: float) -> None:
        """Bring step counter and prefill up to `at_s`; needed before either speed changes, and only then."""
        passed_s = at_s - self._synced_s
        if passed_s <= 0:
            return
        self._synced_s = at_s
        if self._decoding:
            self._steps += passed_s / self._step_s()
        if self._prefilling is not None:
            done = passed_s / self._prefill_token_s()
            self._prefill_left_tokens = max(0.0, self._prefill_left_tokens - done)

    # Prefill

    def _admit(self, at_s: float) -> None:
        """Start the head of the line when nothing else is in prefill and its whole prompt fits."""
        if not self._line or self._prefilling is not None or len(self._admitted) >= self.config.max_num_seqs:
            return
        live, block_tokens = self._line[0], self.config.block_tokens
        self.kept.expire(at_s)
        # The last token is always computed, for its logits; and only whole blocks are reused.
        reusable = (live.known_tokens - 1) // block_tokens if self.config.prefix_caching else 0
        hit = self.pool.longest_hit(live.hashes, reusable)
        fresh = -(-live.known_tokens // block_tokens) - len(hit)
        while fresh + self.pool.idle_among(hit) > self.pool.free_blocks:
            if self._admitted or not self.kept.make_room():
                return
        self._line.popleft()
        self.pool.touch(hit)
        live.blocks = hit + self.pool.allocate(fresh)
        live.filled_blocks = len(hit)
        self._admitted[live.request.request_id] = live
        self._sync(at_s)
        self._prefilling = live
        loaded = self.kept.loaded_blocks(live.hashes, len(hit), reusable) * block_tokens
        cached = len(hit) * block_tokens + loaded
        # Loading takes its time in the line of prefills.
        load_tokens = self.kept.load_s(loaded) * self.config.prefill_tokens_per_s
        self._prefill_left_tokens = live.known_tokens - cached + load_tokens
        if live.cached_tokens < 0:
            live.cached_tokens = cached
            queries = live.prompt_tokens if self.config.prefix_caching else 0
            self.stats.note_start(queries, cached, loaded, at_s - live.submitted_s)

    def _end_prefill(self, at_s: float) -> None:
        self._sync(at_s)
        live, self._prefilling = self._prefilling, None
        assert live is not None
        self._fill(live, live.known_tokens)
        self.kept.filled(live.hashes, live.filled_blocks)
        self._decoding += 1
        live.joined_at_steps, live.joined_with = self._steps, live.generated + 1
        if not live.told_first:
            self.stats.note_first(live.prompt_tokens, at_s - live.submitted_s)
        self._take_token(live, min(live.joined_with, live.output_tokens), at_s)
        self._admit(at_s)

    # Decode

    def _take_token(self, live: LiveRequest, generated: int, at_s: float) -> None:
        self.stats.generation_tokens += generated - live.generated
        live.generated = generated
        ended = generated == live.output_tokens
        self._tell_tokens(live, ended, at_s)
        if ended:
            self._finish(live, at_s)
            return
        preempted = self.stats.preemptions
        if self._grow(live, at_s):
            self._await_token(live)
        if self.stats.preemptions > preempted:
            self._admit(at_s)  # who gave way may fit again, by what it shares with others

    def _tell_tokens(self, live: LiveRequest, ended: bool, at_s: float) -> None:
        count = live.generated - live.reported
        if live.told_first and not (count and ended) and count < self.config.stream_interval:
            return
        first, live.told_first, live.reported = not live.told_first, True, live.generated
        self._told.append(Tokens(live.request.request_id, at_s, first, count, live.cached_tokens))

    def _await_token(self, live: LiveRequest) -> None:
        """Put the next token that needs an event into the heap: told, first of a new block, or last."""
        generated = live.next_event_at(self.config.stream_interval, self.config.block_tokens)
        steps = live.joined_at_steps + (generated - live.joined_with)
        self._order += 1
        live.order = self._order
        heapq.heappush(self._heap, (steps, self._order, generated, live))

    def _grow(self, live: LiveRequest, at_s: float) -> bool:
        """Make room for the next token; False when the sequence itself had to give way."""
        computed = live.known_tokens - 1
        self._fill(live, computed)
        if computed < len(live.blocks) * self.config.block_tokens:
            return True
        while not self.pool.free_blocks:
            youngest = next(reversed(self._admitted.values()))
            self._preempt(youngest, at_s)
            if youngest is live:
                return False
        live.blocks += self.pool.allocate(1)
        return True

    def _preempt(self, live: LiveRequest, at_s: float) -> None:
        """Put a running request back to the head of the line, where it waits: one block of what it frees is needed."""
        self.stats.preemptions += 1
        self._withdraw(live, at_s)
        self._line.appendleft(live)

    def _finish(self, live: LiveRequest, at_s: float) -> None:
        request, generated = live.request, live.generated
        del self._requests[request.request_id]
        self._withdraw(live, at_s)
        self.kept.ended(live.hashes, at_s)
        self.stats.note_end(request.finish_reason, at_s - live.submitted_s)
        self._told.append(
            Finished(request.request_id, at_s, request.finish_reason, live.cached_tokens, live.prompt_tokens, generated)
        )
        self._admit(at_s)

    def _withdraw(self, live: LiveRequest, at_s: float) -> None:
        """Take an admitted request off the engine: cache what it filled, free all it holds."""
        self._sync(at_s)
        if live is self._prefilling:
            self._prefilling = None
            self._fill(live, live.known_tokens - ceil(self._prefill_left_tokens))
        else:
            self._catch_up(live)
            self._decoding -= 1
            self._fill(live, live.prompt_tokens + max(0, live.generated - 1))
        self.kept.filled(live.hashes, live.filled_blocks)
        self.pool.release(live.blocks)
        live.blocks, live.filled_blocks, live.order = [], 0, -1
        del self._admitted[live.request.request_id]

    def _catch_up(self, live: LiveRequest) -> None:
        """Count tokens that came since the last event."""
        generated = live.generated_by(self._steps)
        self.stats.generation_tokens += generated - live.generated
        live.generated = generated

    def _fill(self, live: LiveRequest, computed_tokens: int) -> None:
        full = min(computed_tokens // self.config.block_tokens, len(live.hashes))
        for index in range(live.filled_blocks, full):
            self.pool.cache(live.blocks[index], live.hashes[index])
        if self.pool.listener is not None and full > live.filled_blocks:
            self.pool.listener.stored(live.request, live.hashes, live.filled_blocks, full)
        live.filled_blocks = max(live.filled_blocks, full)
