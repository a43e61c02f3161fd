"""Two small equal requests to each engine itself: whether it generates, and whether it says what was cached."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from router.app.doctor.asking import Asker, bearer
from router.app.doctor.engines import Engine
from router.app.doctor.findings import Check, Finding, Remarks
from router.app.doctor.requests import GENERATE_S, Turn, completion_body, read_turn, text_of

BLOCKS = 3
"""The second request finds two of them for certain, the last token of a prompt is never a hit."""

DEFAULT_BLOCK_TOKENS = 16
TOKENS = 2
"""An engine's counters are written by the time it sends a second token."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the requests to one engine showed."""

    findings: tuple[Finding, ...] = ()
    tokens_per_word: float | None = None
    """Of doctor's own words; None: it is not known."""


async def probe(asker: Asker, engine: Engine, key: str | None, chance: Random) -> Probed:
    """Send an engine two equal requests and return what their answers tell."""
    say = Remarks(engine.place.name)
    model = next((card.name for card in engine.models if card.parent is None), None)
    if not engine.is_vllm or engine.asleep or model is None:
        return Probed()
    words = BLOCKS * (engine.block_tokens or DEFAULT_BLOCK_TOKENS)
    if engine.max_model_len is not None:
        words = min(words, engine.max_model_len // 4)
    body = completion_body(model, [text_of(chance, words)], TOKENS)
    rank = {"x-data-parallel-rank": "0"} if engine.page and engine.page.ranks > 1 else {}
    turns: list[Turn] = []
    for _ in range(2):
        reply = await asker.post(f"{engine.place.url}/v1/completions", body, bearer(key) | rank, GENERATE_S)
        if not reply.ok:
            return Probed((_refused(say, reply.status, reply.outcome),))
        turns.append(read_turn(reply))
    findings = (say.ok(Check.GENERATES, "generates"), _details(say, engine, turns[1]))
    tokens = turns[1].prompt_tokens
    return Probed(findings, tokens / words if tokens and words else None)


def _refused(say: Remarks, status: int, outcome: str) -> Finding:
    if status in (401, 403):
        return say.note(
            Check.GENERATES, f"not tried: it wants a key ({status})", "", "set WARMROUTE_ENGINE_API_KEY to check it"
        )
    if 400 <= status < 500:
        return say.note(Check.GENERATES, f"takes no completions ({outcome})", "a model that does not generate?")
    return say.problem(
        Check.GENERATES,
        f"generates nothing: {outcome}",
        "its HTTP server answers while its engine does not",
        "look at its log, and restart it",
    )


def _details(say: Remarks, engine: Engine, turn: Turn) -> Finding:
    if turn.cached_tokens is not None:
        return say.ok(Check.TOKEN_DETAILS, "answers say how many prompt tokens were cached")
    if engine.prefix_caching is False:
        return say.note(Check.TOKEN_DETAILS, "can't be told while prefix caching is off")
    return say.warning(
        Check.TOKEN_DETAILS,
        "answers do not say how many prompt tokens were cached",
        "the router can't correct its belief, and reports no real hit rate",
        "--enable-prompt-tokens-details",
    )
