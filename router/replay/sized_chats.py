"""The generated chats without their text: the same sessions and sizes, with numbers in the place of words.

To write, to cut and to hash the words takes more time than all the rest of a replay; a thousand replicas need millions
of them a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from router.core.prompt import BLOCK_BYTES
from router.core.types import Prompt, RoutingRequest
from router.replay.demand import BYTES_PER_TOKEN, MODEL, Job
from router.sim.tokenizer import GENERATION_PROMPT_TOKENS, MESSAGE_MARKER_TOKENS
from router.sim.types import SimRequest
from router.sim.workload import ChatSession, ChatWorkload

_STEP = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1


class SizedChatter:
    """One generated chat. What it shares with others is its system prompt, down to the last whole block."""

    def __init__(self, session: ChatSession, number: int, block_tokens: int) -> None:
        self.number, self.starts_s = number, session.starts_s
        self._turns, self._taken = session.turns, 0
        self._block_tokens = block_tokens
        self._system = xxh3_64_intdigest(f"system {session.system.seed}".encode())
        self._session = xxh3_64_intdigest(session.session_id.encode())
        self._name = session.session_id
        self._hashes: list[int] = []
        self._ends_bytes: list[int] = []
        self._answers_at: list[int] = []
        self._tokens = 0
        self._add(session.system.tokens, self._system)
        self._system_blocks = len(self._hashes)
        self._engine_hashes = _numbered(self._system, 0, self._tokens // block_tokens)

    def next_job(self) -> Job | None:
        if self._taken == len(self._turns):
            return None
        if self._taken:
            self._answers_at.append(len(self._hashes))
            self._add(self._turns[self._taken - 1].answer_tokens, self._session)
        turn = self._turns[self._taken]
        self._taken += 1
        self._add(turn.user_tokens, self._session)
        prompt_tokens = self._tokens + GENERATION_PROMPT_TOKENS
        name = f"{self._name}/{self._taken}"
        prompt = Prompt(self._hashes[:], self._ends_bytes[:], self._answers_at[:], None, None, self._system_blocks)
        request = RoutingRequest(MODEL, "chat", prompt, self._ends_bytes[-1], streaming=True)
        whole = (prompt_tokens + turn.answer_tokens) // self._block_tokens
        self._engine_hashes += _numbered(self._session, len(self._engine_hashes), whole)
        simulated = SimRequest(
            name, range(prompt_tokens), range(turn.answer_tokens), block_hashes=self._engine_hashes[:whole]
        )
        return Job(turn.think_s, request, simulated, self._session, prompt.total_bytes / prompt_tokens)

    def _add(self, tokens: int, identity: int) -> None:
        """Add a message, whose end closes a block."""
        self._tokens += tokens + MESSAGE_MARKER_TOKENS
        start = self._ends_bytes[-1] if self._ends_bytes else 0
        end, first = start + tokens * BYTES_PER_TOKEN, len(self._hashes)
        self._ends_bytes += [*range(start + BLOCK_BYTES, end, BLOCK_BYTES), end]
        self._hashes += _numbered(identity, first, len(self._ends_bytes))


def _numbered(identity: int, first: int, after: int) -> list[int]:
    """Return hashes for blocks by their numbers, from `first` up to `after`."""
    return [(identity + number * _STEP) & _MASK_64 for number in range(first, after)]


@dataclass(frozen=True, slots=True)
class SizedChats:
    """`sessions_per_s` new chats a second (see `ChatWorkload`), for `duration_s`."""

    sessions_per_s: float
    duration_s: float
    block_tokens: int = 64

    @property
    def name(self) -> str:
        return f"chats by their sizes, {self.sessions_per_s:g} sessions/s"

    def clients(self, seed: int) -> list[SizedChatter]:
        chats = ChatWorkload(self.sessions_per_s, self.duration_s, seed).sessions()
        return [SizedChatter(session, number, self.block_tokens) for number, session in enumerate(chats)]
