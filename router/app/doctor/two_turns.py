"""The two-turn check: turn 1, then turn 2 with turn 1 and its answer at its start, counters before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from router.app.doctor.asking import Asker, bearer
from router.app.doctor.engines import Engine
from router.app.doctor.page import Counters, read_page
from router.app.doctor.requests import GENERATE_S, Turn, chat_body, completion_body, read_turn, text_of
from router.app.doctor.routers import Target

PROMPT_TOKENS = 2_000
"""About 125 blocks of 16: enough for the share of hits to speak, and a fraction of a second's prefill."""

PROMPT_SHARE_RATIO = 0.25
"""Of what the model takes and of what the cache holds: words may be up to four tokens each."""

FEWEST_BLOCKS = 3
ANSWER_TOKENS = 2
"""An engine's counters are written by its second token; more would fill a block of their own that turn 2 hits too."""

SETTLE_S, LOOK_S = 3.0, 0.1
"""An engine's counters follow its answers within a step. How long to wait for them, and how often to look."""

FORMS: Mapping[str, Callable[[str, Sequence[str], int], dict[str, Any]]] = {
    "/v1/chat/completions": chat_body,
    "/v1/completions": completion_body,
}

ByUrl = dict[str, Counters]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of two turns."""

    first: Turn
    second: Turn
    before: ByUrl
    """Counters by engine before turn 2."""
    after: ByUrl
    path: str = ""
    body: dict[str, Any] | None = None
    """That of turn 2."""


class TwoTurns:
    """Two turns of a new conversation through the router, on engines that serve a model."""

    def __init__(
        self,
        asker: Asker,
        target: Target,
        model: str,
        engines: Sequence[Engine],
        chance: Random,
        tokens_per_word: float = 1.0,
    ) -> None:
        self._asker = asker
        self._tokens_per_word = tokens_per_word
        self._target = target
        self._model = model
        self._engines = [engine for engine in engines if engine.is_vllm]
        self._chance = chance
        self._counts = any(engine.prefix_caching is not False for engine in self._engines)

    @property
    def prompt_tokens(self) -> int:
        """How long turn 1 is to be; 0: what the engines take is too short for the check."""
        serving = [engine for engine in self._engines if any(card.name == self._model for card in engine.models)]
        sizes = [size for engine in serving for size in (engine.max_model_len, engine.kv_tokens) if size]
        tokens = min([PROMPT_TOKENS, *(int(size * PROMPT_SHARE_RATIO) for size in sizes)])
        block = max((engine.block_tokens or 0 for engine in serving), default=0)
        return tokens if tokens >= FEWEST_BLOCKS * block else 0

    async def run(self) -> Evidence:
        """Send both turns. Where turn 1 fails there is no turn 2, and it stands for both."""
        said = [text_of(self._chance, round(self.prompt_tokens / self._tokens_per_word))]
        start = await self._read()
        path, first = await self._open(said)
        if not first.reply.ok:
            return Evidence(first, first, start, start, path)
        before = await self._settled(start, first)
        said += [first.text or "Yes.", f" And then? {text_of(self._chance, 8)}"]
        body = FORMS[path](self._model, said, ANSWER_TOKENS)
        second = await self._say(path, body)
        return Evidence(first, second, before, await self._settled(before, second), path, body)

    async def _open(self, said: list[str]) -> tuple[str, Turn]:
        """Send turn 1 as a chat; a model without a chat template gets a text to complete."""
        tried: list[tuple[str, Turn]] = []
        for path, form in FORMS.items():
            tried.append((path, await self._say(path, form(self._model, said, ANSWER_TOKENS))))
            if tried[-1][1].reply.status not in (400, 404):
                return tried[-1]
        return tried[0]

    async def _say(self, path: str, body: dict[str, Any]) -> Turn:
        headers = bearer(self._target.client_key) | {"x-warmroute-explain": "1"}
        return read_turn(await self._asker.post(self._target.router + path, body, headers, GENERATE_S))

    async def _read(self) -> ByUrl:
        """Return the counters of all engines that can be read."""
        urls = [engine.place.url for engine in self._engines]
        key = bearer(self._target.engine_key)
        replies = await asyncio.gather(*(self._asker.get(url + "/metrics", key) for url in urls))
        pages = {url: read_page(reply.text) for url, reply in zip(urls, replies, strict=True) if reply.ok}
        return {url: page.counters for url, page in pages.items() if page is not None}

    async def _settled(self, before: ByUrl, turn: Turn) -> ByUrl:
        """Read the counters once they tell of a turn's prompt, or will not."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (SETTLE_S if self._counts and turn.reply.ok else 0.0)
        while True:
            now = await self._read()
            if risen(before, now).queries_tokens >= (turn.prompt_tokens or 0) or loop.time() >= until_s:
                return now
            await asyncio.sleep(LOOK_S)


def risen(before: ByUrl, after: ByUrl, urls: Sequence[str] | None = None) -> Counters:
    """Return by how much the counters of some engines, or of all, have risen together."""
    pairs = [(before[url], after[url]) for url in (after if urls is None else urls) if url in before and url in after]
    return Counters(
        sum(late.queries_tokens - early.queries_tokens for early, late in pairs),
        sum(late.hits_tokens - early.hits_tokens for early, late in pairs),
        sum(late.external_hits_tokens - early.external_hits_tokens for early, late in pairs),
        None,
    )
