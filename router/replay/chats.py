"""Generated chats as a workload: Poisson arrivals, think times, one of a few system prompts."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from xxhash import xxh3_64_intdigest

from router.core.prompt import PromptBuilder, scope_hash
from router.core.types import RoutingRequest
from router.replay.demand import MODEL, Job
from router.sim.blocks import chain_hashes
from router.sim.tokenizer import Tokenizer, answer_text
from router.sim.types import SimRequest
from router.sim.workload import ChatSession, ChatTurn, ChatWorkload

MESSAGE_BYTES = 40
"""Of JSON around a message's content."""

_SCOPE = scope_hash(MODEL, "")


class Chatter:
    """One generated chat."""

    def __init__(
        self, session: ChatSession, number: int, tokenizer: Tokenizer, block_tokens: int, batch: bool = False
    ) -> None:
        self.number, self.batch, self.starts_s = number, batch, session.starts_s
        self._session, self._tokenizer, self._block_tokens = session, tokenizer, block_tokens
        self._answer: str | None = None

    def next_job(self) -> Job | None:
        turn = self._session.next_turn(self._answer)
        if turn is None:
            return None
        name = f"{turn.session_id}/{turn.number}"
        self._answer = answer_text(xxh3_64_intdigest(name.encode()), turn.max_tokens)
        session = xxh3_64_intdigest(turn.session_id.encode())
        request, simulated = self._request_of(turn), self._simulated_of(turn, name, self._answer)
        prompt_bytes = request.prompt.total_bytes if request.prompt else 0
        return Job(turn.think_s, request, simulated, session, prompt_bytes / len(simulated.token_ids))

    def _request_of(self, turn: ChatTurn) -> RoutingRequest:
        builder = PromptBuilder(_SCOPE)
        for message in turn.messages:
            builder.add(message["role"].encode(), message["content"].encode())
        body_bytes = sum(len(message["content"]) + MESSAGE_BYTES for message in turn.messages)
        return RoutingRequest(MODEL, "chat", builder.build(), body_bytes, streaming=True, batch=self.batch)

    def _simulated_of(self, turn: ChatTurn, name: str, answer: str) -> SimRequest:
        prompt_ids, answer_ids = self._tokenizer.render_chat(turn.messages), self._tokenizer.encode(answer)
        hashes = chain_hashes(prompt_ids + answer_ids, self._block_tokens)
        return SimRequest(name, range(len(prompt_ids)), range(len(answer_ids)), block_hashes=hashes)


@dataclass(frozen=True, slots=True)
class Chats:
    """`sessions_per_s` new chats a second (see `ChatWorkload`), for `duration_s`."""

    sessions_per_s: float
    duration_s: float
    block_tokens: int = 16
    batch_ratio: float = 0.0
    """Share of the clients that nobody waits for."""

    @property
    def name(self) -> str:
        return f"chats, {self.sessions_per_s:g} sessions/s"

    def clients(self, seed: int) -> list[Chatter]:
        chance, tokenizer = Random(seed), Tokenizer()
        return [
            Chatter(session, number, tokenizer, self.block_tokens, chance.random() < self.batch_ratio)
            for number, session in enumerate(ChatWorkload(self.sessions_per_s, self.duration_s, seed).sessions())
        ]
