"""One request under way: its prompts in the engine, its answer going out as the engine's events come in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from router.sim.errors import BUSY, ENGINE_DEAD, Refusal, refusal_body
from router.sim.faults import UNHURT, FaultKind, Taken
from router.sim.forms import Choice, Form, usage_of
from router.sim.meters import Finish
from router.sim.ranks import Rank
from router.sim.types import DoesNotFit, Event, Finished, Named, SimRequest, Tokens

_KEEP_ALIVE = b": keep-alive\n\n"


class Outlet(Protocol):
    """Where an answer goes: a reply on a connection, or nowhere."""

    def sized(self, status: int, body: bytes) -> None:
        """Take a whole answer."""

    def stream(self) -> None:
        """Take the head of a stream."""

    def event(self, data: bytes) -> None:
        """Take an event."""

    def end(self) -> None:
        """Take the end of the stream."""

    def drop(self) -> None:
        """Take it that nothing more comes, in the middle of the stream."""


class Nowhere:
    """The outlet of a background request: nobody listens."""

    def sized(self, status: int, body: bytes) -> None:
        pass

    def stream(self) -> None:
        pass

    def event(self, data: bytes) -> None:
        pass

    def end(self) -> None:
        pass

    def drop(self) -> None:
        pass


@dataclass(slots=True)
class Work:
    """What is to be generated, and how the answer is told."""

    ident: str
    """The engine's request ids begin with it."""
    rank: Rank
    """Where it runs."""
    form: Form
    choices: Sequence[Choice]
    salt: int = 0
    named: Named | None = None
    """What cache events say of it."""
    streaming: bool = False
    shared_prompt: bool = False
    """The choices are n answers to one prompt."""
    details: bool = True
    """Usage tells the cached tokens."""
    limit_tokens: int = 1
    anthropic: bool = False
    """Errors have Anthropic's form."""
    taken: Taken = field(default_factory=lambda: UNHURT)


class Workshop(Protocol):
    """What a generation needs of its replica."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @property
    def sse_keep_alive_s(self) -> float:
        """Comments are sent after this long without an event; 0: never."""

    def begun(self, generation: Generation) -> None:
        """Note that it is under way."""

    def over(self, generation: Generation) -> None:
        """Note that it is not any more."""


class Generation:
    """Runs one `Work`. `start` once; then events, or `lost`, or `fail`."""

    def __init__(self, shop: Workshop, work: Work, outlet: Outlet) -> None:
        self._shop = shop
        self._work = work
        self._outlet = outlet
        self._left = {self._engine_id(choice): choice for choice in work.choices}
        self._begun_s = 0.0
        self._first_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        self._opened = False
        self._over = False
        self._events_sent = 0
        self._error_after = work.taken.get(FaultKind.STREAM_ERROR)
        self._keep_alive: asyncio.TimerHandle | None = None
        self._driver, self._meters = work.rank.driver, work.rank.meters

    def start(self) -> Generation:
        """Put all prompts in the engine's line, and send what goes out before it begins.

        Raises:
            Refusal: the engine's queue is full, or a prompt could never run.
        """
        self._begun_s = self._driver.now_s()
        self._shop.begun(self)
        for ident, choice in tuple(self._left.items()):
            self._submit(ident, choice)
        if self._work.streaming:
            self._outlet.stream()
            self._send(self._work.form.opening())
            self._await_silence()
        return self

    def lost(self) -> None:
        """The client left: take everything off the engine."""
        self._withdraw()

    def fail(self) -> None:
        """The engine died: tell it as vLLM does."""
        if self._over:
            return
        self._withdraw()
        if not self._work.streaming:
            refusal = Refusal(ENGINE_DEAD, status=500, kind="InternalServerError")
            self._outlet.sized(500, refusal_body(refusal, anthropic=self._work.anthropic))
        elif (events := self._work.form.failed(ENGINE_DEAD)) is None:
            self._outlet.drop()
        else:
            for event in events:
                self._outlet.event(event)
            self._outlet.end()

    def _engine_id(self, choice: Choice) -> str:
        return f"{self._work.ident}-{choice.index}" if len(self._work.choices) > 1 else self._work.ident

    def _submit(self, ident: str, choice: Choice) -> None:
        output = choice.output
        work = self._work
        request = SimRequest(ident, choice.prompt, output.token_ids, work.salt, output.engine_reason, named=work.named)
        try:
            accepted = self._driver.submit(request, self._take)
        except DoesNotFit as error:
            self._withdraw()
            raise Refusal(str(error)) from None
        if not accepted:
            self._withdraw()
            raise Refusal(BUSY, status=503, kind="Service Unavailable")

    def _take(self, event: Event) -> None:
        if isinstance(event, Tokens):
            self._take_tokens(event)
        else:
            self._take_end(event)

    def _take_tokens(self, event: Tokens) -> None:
        choice = self._left.get(event.request_id)
        if choice is None:
            return  # Withdrawn by what an earlier event of the same round led to.
        told, choice.sent = choice.sent, choice.sent + event.count
        self._measure(event, choice)
        if not self._work.streaming:
            return
        if not self._opened:
            self._opened = True
            self._send(self._work.form.first(self._work.choices))
        if event.count and not self._over:
            self._send(self._work.form.more(choice, told))
        self._await_silence()

    def _measure(self, event: Tokens, choice: Choice) -> None:
        if event.first:
            choice.cached_tokens = event.cached_tokens
            self._first_s[event.request_id] = event.at_s
            self._meters.first_token(event.at_s - self._begun_s, len(choice.prompt) - event.cached_tokens)
        else:
            self._meters.more_tokens(event.count, event.at_s - self._last_s[event.request_id])
        self._last_s[event.request_id] = event.at_s

    def _take_end(self, event: Finished) -> None:
        if event.request_id not in self._left:
            return
        self._count_finish(event, self._left.pop(event.request_id))
        if self._left or self._over:
            return
        work = self._work
        usage = usage_of(
            work.choices,
            self._driver.engine.config.block_tokens,
            shared_prompt=work.shared_prompt,
            details=work.details,
        )
        if work.streaming:
            self._send(work.form.closing(work.choices, usage))
        self._close()
        if work.streaming:
            self._outlet.end()
        else:
            self._outlet.sized(200, work.form.whole(work.choices, usage))

    def _count_finish(self, event: Finished, choice: Choice) -> None:
        config = self._driver.engine.config
        ttft_s = self._first_s[event.request_id] - self._begun_s
        # The engine keeps its queue times to itself: what was not own prefill at full speed was waiting.
        own_s = (event.prompt_tokens - event.cached_tokens) / config.prefill_tokens_per_s
        self._meters.finished(
            Finish(
                event.prompt_tokens,
                event.cached_tokens,
                event.generated_tokens,
                self._work.limit_tokens,
                len(self._work.choices) if self._work.shared_prompt else 1,
                max(0.0, ttft_s - own_s),
                ttft_s,
                event.at_s - self._begun_s,
            )
        )

    def _send(self, events: Iterable[bytes]) -> None:
        for event in events:
            if self._error_after is not None and self._events_sent >= self._error_after.after_chunks:
                self.fail()
                return
            self._events_sent += 1
            self._outlet.event(event)

    def _await_silence(self) -> None:
        interval_s = self._shop.sse_keep_alive_s
        if interval_s and not self._over:
            self._stop_waiting()
            self._keep_alive = self._shop.loop.call_later(interval_s, self._comment)

    def _comment(self) -> None:
        self._outlet.event(_KEEP_ALIVE)
        self._await_silence()

    def _stop_waiting(self) -> None:
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None

    def _withdraw(self) -> None:
        left, self._left = tuple(self._left), {}
        for ident in left:
            self._driver.abort(ident)
        self._close()

    def _close(self) -> None:
        self._stop_waiting()
        if not self._over:
            self._over = True
            self._shop.over(self)
