"""The tokenizer of the data plane: a few threads, a bounded line before them, and a deadline for each prompt."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from router.adapters.tokenizer.agreement import Agreement
from router.adapters.tokenizer.counts import Result, TokenizerCounts
from router.adapters.tokenizer.models import Models, tokenised
from router.adapters.tokenizer.trouble import Unrendered
from router.core.token_ids import TokenIds
from router.core.types import RoutingRequest

LOGGER = logging.getLogger("warmroute.tokenizer")

Then = Callable[[TokenIds | None], None]

SHAPES = frozenset({"chat", "completions", "messages", "responses"})
"""What engines cache prompts of, and this can read."""

THREADS = 2
"""Templates hold the interpreter's lock, tokenizers do not: a long new text must not keep known ones waiting."""

MAX_WAITING = 64
"""Prompts in line at the most. At the usual millisecond each, two threads get through them within the deadline."""

MAX_BODY_BYTES = 4 << 20
"""About a million tokens. Reading a longer body takes the interpreter's lock for so long that streams would notice."""

SWITCH_INTERVAL_S = 0.001
"""How long a thread may keep the event loop waiting for the interpreter's lock; Python's own 5 ms are felt in
streams."""

MAX_MODELS = 64
"""Names of models whose answers are counted: clients choose them."""


class Job:
    """One prompt on its way. It is answered once, on the event loop: by the thread, or by the deadline."""

    __slots__ = ("_then", "_timer", "given_up", "loop")

    def __init__(self, then: Callable[[Result, TokenIds | None], None], deadline_s: float) -> None:
        """`then` is told what came of it, and the tokens."""
        self.given_up = False
        self.loop = asyncio.get_running_loop()
        self._then = then
        self._timer = self.loop.call_later(deadline_s, self._late)

    def answer(self, result: Result, tokens: TokenIds | None) -> None:
        """Tell what came of it, unless the deadline was quicker."""
        self._timer.cancel()
        if not self.given_up:
            self._then(result, tokens)

    def _late(self) -> None:
        self.given_up = True
        self._then(Result.LATE, None)


class TokenizerThreads:
    """Implements `ports.Tokenizer`."""

    def __init__(self, models: Models, deadline_s: float) -> None:
        """Nothing runs before the first prompt is asked for."""
        self._models = models
        self._deadline_s = deadline_s
        self._agreements: dict[str, Agreement] = {}
        self._pool = ThreadPoolExecutor(THREADS, "tokenizer")
        self._waiting = 0
        self._complained: set[str] = set()
        caches = {name: model.encoder.cache for name, model in models.by_name.items()}
        self.counts = TokenizerCounts(self._agreements, caches)
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))

    @property
    def waiting(self) -> int:
        """Prompts that threads have, or will have."""
        return self._waiting

    def ask(self, request: RoutingRequest, body: bytes, then: Then) -> None:
        """See `ports.Tokenizer.ask`."""
        model, lora_name = self._models.find(request.model)
        if model is None or request.prompt is None or request.shape not in SHAPES:
            then(None)
            return
        refused = self._refused(request.model, len(body))
        if refused is not None:
            self._answered(then, refused, None)
            return
        self._waiting += 1
        job = Job(partial(self._answered, then), self._deadline_s)
        self._pool.submit(self._work, job, partial(tokenised, model, lora_name, request.shape, body), request.model)

    def _refused(self, model: str, body_bytes: int) -> Result | None:
        agreement = self._agreements.get(model)
        if agreement is not None and not agreement.wanted():
            return Result.DISTRUSTED
        return Result.BUSY if self._waiting >= MAX_WAITING or body_bytes > MAX_BODY_BYTES else None

    def _answered(self, then: Then, result: Result, tokens: TokenIds | None) -> None:
        self.counts.count(result)
        then(tokens)

    def _work(self, job: Job, make: Callable[[], TokenIds], model: str) -> None:
        """Make a prompt's tokens; in a thread. What has begun is finished: the next turn needs only what is new then.

        What waited until its deadline is not begun: it would keep others waiting until theirs.
        """
        result, tokens, took_s = Result.LATE, None, None
        if not job.given_up:
            began_s = time.perf_counter()
            result, tokens = self._made(make, model)
            took_s = time.perf_counter() - began_s
        with contextlib.suppress(RuntimeError):  # the event loop is gone: so is whoever asked
            job.loop.call_soon_threadsafe(self._done, job, result, tokens, took_s)

    def _made(self, make: Callable[[], TokenIds], model: str) -> tuple[Result, TokenIds | None]:
        try:
            return Result.IN_TIME, make()
        except Unrendered:
            return Result.UNRENDERED, None
        except Exception as error:  # noqa: BLE001 - templates raise what they like
            self._complain(model, type(error).__name__)
            return Result.FAILED, None

    def _complain(self, model: str, error: str) -> None:
        """Log the first failure of each model. Its text may have something of the prompt in it."""
        if model not in self._complained and len(self._complained) < MAX_MODELS:
            self._complained.add(model)
            LOGGER.warning("a request to %s could not be tokenised (%s); it goes by its bytes", model or "?", error)

    def _done(self, job: Job, result: Result, tokens: TokenIds | None, took_s: float | None) -> None:
        self._waiting -= 1
        if took_s is not None:
            self.counts.took(took_s)
        job.answer(result, tokens)

    def reported(self, request: RoutingRequest, prompt_tokens: int) -> None:
        """See `ports.Tokenizer.reported`."""
        if request.tokens is None:
            return
        agreement = self._agreements.get(request.model)
        if agreement is None:
            if len(self._agreements) >= MAX_MODELS:
                return
            agreement = self._agreements[request.model] = Agreement()
        if agreement.answered(len(request.tokens) == prompt_tokens):
            self._tell(request, prompt_tokens, agreement.trusted)

    def _tell(self, request: RoutingRequest, prompt_tokens: int, trusted: bool) -> None:
        if trusted:
            LOGGER.info("the engines' token counts for %s are ours again", request.model)
            return
        LOGGER.error(
            "the engines count other tokens for %s (%d where we have %d): its requests go by their bytes. "
            "Are its tokenizer, chat template and template arguments those of the engines?",
            request.model, prompt_tokens, len(request.tokens or ()),
        )  # fmt: skip

    def close(self) -> None:
        """Begin nothing more; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
