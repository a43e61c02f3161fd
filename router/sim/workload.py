"""Generated traffic: a seeded generator of multi-turn chats. No files, clock or sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp
from random import Random

from router.sim.tokenizer import GENERATION_PROMPT_TOKENS, MESSAGE_MARKER_TOKENS, answer_text

# The chat workload that the policies were compared on; change one of these and no figure can be compared any more.
SYSTEM_PROMPTS = 24
SYSTEM_TOKENS = (300, 3_000)
MEAN_FURTHER_TURNS = 5.0
MAX_TURNS = 41
THINK_MEDIAN_S, THINK_SIGMA = 25.0, 1.0
USER_MEDIAN_TOKENS, USER_SIGMA, USER_TOKENS = 120, 1.1, (4, 4_000)
DOCUMENT_SHARE_RATIO = 0.3
DOCUMENT_MEDIAN_TOKENS, DOCUMENT_SIGMA, DOCUMENT_TOKENS = 3_000, 0.8, (1, 20_000)
ANSWER_MEDIAN_TOKENS, ANSWER_SIGMA, ANSWER_TOKENS = 220, 0.8, (8, 1_508)


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of generated text: the same seed and size give the same words."""

    seed: int
    tokens: int

    @property
    def text(self) -> str:
        """The words; exactly `tokens` tokens for `router.sim.tokenizer`."""
        return answer_text(self.seed, self.tokens)


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """What the user will send and how long the answer will be, drawn before the session starts."""

    think_s: float
    """Seconds after the last answer (0 in the first turn)."""
    user: tuple[Passage, ...]
    """The message, and in some first turns a pasted document."""
    answer_tokens: int

    @property
    def user_tokens(self) -> int:
        return sum(passage.tokens for passage in self.user)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One request of a session, ready to send."""

    session_id: str
    number: int
    """From 1."""
    think_s: float
    messages: list[dict[str, str]]
    prompt_tokens: int
    """As the simulated tokenizer counts, when all answers so far had their planned length."""
    max_tokens: int
    last: bool


@dataclass(slots=True)
class ChatSession:
    """One conversation, driven by its consumer: each turn is asked for with the answer to the one before."""

    session_id: str
    starts_s: float
    """Seconds after the start of the workload."""
    system: Passage
    turns: tuple[PlannedTurn, ...]
    _messages: list[dict[str, str]] = field(default_factory=list)
    _tokens: int = 0
    _taken: int = 0

    def next_turn(self, answer: str | None = None) -> ChatTurn | None:
        """Return the next turn, None after the last one.

        `answer` is the text that the previous turn got; without one (the first turn, a failed turn) the user's messages
        follow each other.
        """
        if self._taken == len(self.turns):
            return None
        if not self._taken:
            self._say("system", self.system.text, self.system.tokens)
        elif answer is not None:
            self._say("assistant", answer, self.turns[self._taken - 1].answer_tokens)
        turn = self.turns[self._taken]
        self._taken += 1
        # A line break joins the next word to one token, so the passages' tokens add up.
        self._say("user", "\n".join(passage.text for passage in turn.user), turn.user_tokens)
        return ChatTurn(
            session_id=self.session_id,
            number=self._taken,
            think_s=turn.think_s,
            messages=list(self._messages),
            prompt_tokens=self._tokens + GENERATION_PROMPT_TOKENS,
            max_tokens=turn.answer_tokens,
            last=self._taken == len(self.turns),
        )

    def _say(self, role: str, text: str, tokens: int) -> None:
        self._messages.append({"role": role, "content": text})
        self._tokens += tokens + MESSAGE_MARKER_TOKENS


@dataclass(frozen=True, slots=True)
class ChatWorkload:
    """Chats that arrive at random: the same three numbers give the same sessions, word for word."""

    sessions_per_s: float
    duration_s: float
    seed: int = 0

    def sessions(self) -> Iterator[ChatSession]:
        """Yield the sessions that start within `duration_s`, in order of their start (Poisson arrivals)."""
        chance = Random(self.seed)
        systems = [_passage(chance, chance.randint(*SYSTEM_TOKENS)) for _ in range(SYSTEM_PROMPTS)]
        zipf = [1 / rank for rank in range(1, SYSTEM_PROMPTS + 1)]
        starts_s, number = chance.expovariate(self.sessions_per_s), 0
        while starts_s < self.duration_s:
            system = chance.choices(systems, zipf)[0]
            yield ChatSession(f"chat-{self.seed}-{number}", starts_s, system, tuple(_plan_turns(chance)))
            number += 1
            starts_s += chance.expovariate(self.sessions_per_s)


def _plan_turns(chance: Random) -> Iterator[PlannedTurn]:
    count = min(MAX_TURNS, 1 + round(chance.expovariate(1 / MEAN_FURTHER_TURNS)))
    for number in range(count):
        user = [_passage(chance, _draw_tokens(chance, USER_MEDIAN_TOKENS, USER_SIGMA, USER_TOKENS))]
        if number == 0 and chance.random() < DOCUMENT_SHARE_RATIO:
            tokens = _draw_tokens(chance, DOCUMENT_MEDIAN_TOKENS, DOCUMENT_SIGMA, DOCUMENT_TOKENS)
            user.append(_passage(chance, tokens))
        answer_tokens = _draw_tokens(chance, ANSWER_MEDIAN_TOKENS, ANSWER_SIGMA, ANSWER_TOKENS)
        think_s = _draw(chance, THINK_MEDIAN_S, THINK_SIGMA) if number else 0.0
        yield PlannedTurn(think_s, tuple(user), answer_tokens)


def _draw(chance: Random, median: float, sigma: float) -> float:
    """Draw from the log-normal distribution with this median."""
    return median * exp(chance.gauss(0.0, sigma))


def _draw_tokens(chance: Random, median: float, sigma: float, bounds: tuple[int, int]) -> int:
    return min(max(round(_draw(chance, median, sigma)), bounds[0]), bounds[1])


def _passage(chance: Random, tokens: int) -> Passage:
    return Passage(chance.getrandbits(63), tokens)
