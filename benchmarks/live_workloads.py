"""The workloads of live.py: generated chats, and recorded requests whose text is made up.

The text of a recorded block is made from the block's identity, so two prompts begin with the same text exactly as far
as the trace says that they are equal. Messages end at every so many blocks, as many as make a usual message.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path

from benchmarks.chats import UNCOUNTED_SHARE, Workload
from router.app.replay.opening import open_trace
from router.replay.demand import Agents, Once, Record, Recorded
from router.replay.traces.formats import Trace
from router.replay.traces.types import TraceRequest
from router.sim.tokenizer import GENERATION_PROMPT_TOKENS, MESSAGE_MARKER_TOKENS
from router.sim.workload import ChatTurn, ChatWorkload

EXCERPT = Path(__file__).with_name("data") / "mooncake_conversation_15_minutes.jsonl.gz"
SEED_STEP_S = 300.0  # as in replay: each seed begins so much later in the trace
MESSAGE_TOKENS = 1_024  # an agent's prompt of 120,000 tokens has a hundred messages, not a thousand
NAME_TOKENS = 3  # a space, and 24 letters and digits, eight a token
START_TOKENS, END_TOKENS = MESSAGE_MARKER_TOKENS - 1, 1
LEAST_TOKENS = MESSAGE_MARKER_TOKENS + NAME_TOKENS


@lru_cache(maxsize=4)
def read(path: Path) -> Trace:
    return open_trace(path)


def text(name: str, tokens: int) -> str:
    """Text of `tokens` tokens, 3 at least; `name` is 24 letters and digits."""
    return f" {name}" + " x" * (tokens - NAME_TOKENS)


def messages_of(recorded: TraceRequest, salt: int, serial: int) -> list[dict[str, str]]:
    """Text for a recorded prompt, as long as it was to within eight tokens. Equal blocks of an equal `salt` are equal.

    What is behind the last full block is `serial`'s alone: no engine can have it from another request.

    Raises:
        ValueError: a block is too small to hold its name.
    """
    size = recorded.block_tokens
    if size < LEAST_TOKENS:
        raise ValueError(f"a block of {size} tokens cannot hold its name: {LEAST_TOKENS} at least")
    blocks = recorded.block_hashes[: recorded.prompt_tokens // size]
    grouped = max(1, MESSAGE_TOKENS // size)
    names = [f"{salt:08x}{block:016x}" for block in blocks]
    texts = [
        block_text(names[at : at + grouped], size, closed=at + grouped <= len(names))
        for at in range(0, len(names), grouped)
    ]
    rest_tokens = recorded.prompt_tokens - size * len(blocks) - GENERATION_PROMPT_TOKENS - END_TOKENS
    open_ended = len(blocks) % grouped != 0
    if not open_ended:
        rest_tokens -= START_TOKENS
    if rest_tokens > -MESSAGE_MARKER_TOKENS or not blocks:
        rest = text(f"{salt:08x}r{serial:015x}", max(NAME_TOKENS, rest_tokens))
        texts[-1:] = [texts[-1] + rest] if open_ended else [*texts[-1:], rest]
    return [{"role": "user", "content": one} for one in texts]


def turns_of(recorded: TraceRequest, salt: int, ends: Sequence[int]) -> list[dict[str, str]]:
    """Text for the full blocks of a recorded prompt, whose messages also end where those of earlier turns did.

    `ends`: numbers of blocks at which messages of the session's turn before ended, ascending; the last one is that
    turn's end. A client sends its history as it was, message by message, so routers may look for a turn's end; of a
    trace's last, partial block nobody knows what the next turn made of it, so it is left out.
    """
    size, blocks = recorded.block_tokens, recorded.block_hashes[: recorded.prompt_tokens // recorded.block_tokens]
    names = [f"{salt:08x}{block:016x}" for block in blocks]
    marks = [0, *ends]
    texts = [block_text(names[start:end], size, closed=True) for start, end in pairwise(marks)]
    return [{"role": "user", "content": one} for one in texts]


def ends_of(blocks: Sequence[int], before: Sequence[int], ends: Sequence[int], grouped: int) -> list[int]:
    """Where the messages of a prompt end: where those of the turn before did, as far as it goes on, then each so many.

    `before`: blocks of the turn before; `ends`: where its messages ended.
    """
    same = len(commonprefix([list(blocks), list(before)]))
    kept = [end for end in ends if end <= same]
    start = kept[-1] if kept else 0
    return [*kept, *range(start + grouped, len(blocks), grouped), len(blocks)] if start < len(blocks) else kept


def block_text(names: Sequence[str], size: int, *, closed: bool) -> str:
    """Text of the blocks of one message. They hold its start, and its end, too, where it is closed."""
    tokens = [size] * len(names)
    tokens[0] -= START_TOKENS
    if closed:
        tokens[-1] -= END_TOKENS
    return "".join(map(text, names, tokens))


@dataclass(slots=True)
class History:
    """What a session has sent last."""

    blocks: Sequence[int] = ()
    ends: Sequence[int] = ()


class Client:
    """Someone who asks what was recorded, request after request, whatever the answers are."""

    def __init__(self, recorded: Once | Recorded, starts_s: float, session: str, histories: dict[str, History]) -> None:
        """`histories`: of all sessions, by name; shared by the clients of one run."""
        self.recorded, self.starts_s, self.session = recorded, starts_s, session
        self.histories = histories
        self.taken = 0

    def next_turn(self, answer: str | None = None) -> ChatTurn | None:
        """Return the next request as a chat's turn; None after the last one."""
        record = self.recorded.next_record()
        if record is None:
            return None
        self.taken += 1
        recorded = record.recorded
        # An agent goes from one recorded session to the next.
        name = f"{self.session}-{recorded.session_id}" if recorded.session_id else self.session
        messages = self.messages(record, self.histories.setdefault(name, History()))
        return turn_of(record, name, messages, self.taken)

    def messages(self, record: Record, history: History) -> list[dict[str, str]]:
        recorded, size = record.recorded, record.recorded.block_tokens
        blocks = recorded.block_hashes[: recorded.prompt_tokens // size]
        if not blocks:
            return messages_of(recorded, record.salt, (self.recorded.number << 24) + self.taken)
        ends = ends_of(blocks, history.blocks, history.ends, max(1, MESSAGE_TOKENS // size))
        history.blocks, history.ends = blocks, ends
        return turns_of(recorded, record.salt, ends)


def turn_of(record: Record, name: str, messages: list[dict[str, str]], number: int) -> ChatTurn:
    recorded = record.recorded
    return ChatTurn(
        session_id=name,
        number=number,
        think_s=record.think_s,
        messages=messages,
        prompt_tokens=recorded.prompt_tokens,
        max_tokens=max(1, recorded.output_tokens),
        last=False,
    )


@dataclass(frozen=True, slots=True)
class ByTimeStamps:
    """Recorded requests that come when they came then."""

    requests: Sequence[TraceRequest]
    duration_s: float

    def sessions(self) -> Iterator[Client]:
        histories: dict[str, History] = {}
        for number, (one, session) in enumerate(zip(self.requests, conversations(self.requests), strict=True)):
            yield Client(Once(number, one.arrives_s, one), one.arrives_s, f"conversation-{session}", histories)


def conversations(requests: Sequence[TraceRequest]) -> list[int]:
    """Which conversation each request belongs to, for routers that are told: a trace of blocks names none.

    A request goes on with the one whose last full block is the latest in its own prompt. First blocks do not count:
    everybody has the same.
    """
    ends: dict[int, int] = {}
    found = []
    for number, one in enumerate(requests):
        blocks = one.block_hashes
        known = (ends[block] for block in reversed(blocks[1:]) if block in ends)
        found.append(next(known, number))
        if len(blocks) > 1:
            ends[blocks[-1]] = found[-1]
    return found


@dataclass(frozen=True, slots=True)
class LiveAgents:
    """So many recorded agents at once, each request one recorded think time after the answer before."""

    agents: Agents
    duration_s: float
    seed: int

    def sessions(self) -> Iterator[Client]:
        histories: dict[str, History] = {}
        for client in self.agents.clients(self.seed):
            yield Client(client, client.starts_s, f"agent-{client.number}", histories)


def chat(options: argparse.Namespace, seed: int) -> Workload:
    return ChatWorkload(options.sessions_per_s, options.minutes * 60, seed)


def conversation(options: argparse.Namespace, seed: int) -> Workload:
    requests = read(options.conversation).requests
    skipped_s = (seed - 1) * SEED_STEP_S % max(SEED_STEP_S, requests[-1].arrives_s)
    later = [replace(one, arrives_s=one.arrives_s - skipped_s) for one in requests if one.arrives_s >= skipped_s]
    duration_s = min(options.minutes * 60, later[-1].arrives_s)
    return ByTimeStamps([one for one in later if one.arrives_s < duration_s], duration_s)


def agents(options: argparse.Namespace, seed: int) -> Workload:
    duration_s = options.minutes * 60
    sessions, warm_up_s = read(options.coding).sessions, duration_s * UNCOUNTED_SHARE
    # No request takes more than half a cache.
    live = Agents("agents", sessions, options.agents, warm_up_s, options.kv_tokens // 2)
    return LiveAgents(live, duration_s, seed)


@dataclass(frozen=True, slots=True)
class Kind:
    """A workload's own defaults, what its load is called, and how it is made from options and a seed."""

    minutes: float
    kv_tokens: int
    title: str
    make: Callable[[argparse.Namespace, int], Workload]


KINDS = {
    "chat": Kind(8, 300_000, "{sessions_per_s:g} chats/s", chat),
    "conversation": Kind(30, 1_250_000, "conversation trace", conversation),
    "agents": Kind(20, 1_000_000, "{agents} agents live", agents),
}


def with_defaults(kind: str, options: argparse.Namespace) -> argparse.Namespace:
    """The options of one workload: its own minutes and caches where none were asked for."""
    defaults = KINDS[kind]
    own = {"minutes": options.minutes or defaults.minutes, "kv_tokens": options.kv_tokens or defaults.kv_tokens}
    return argparse.Namespace(**{**vars(options), **own})


def title(kind: str, options: argparse.Namespace) -> str:
    load = KINDS[kind].title.format(**vars(options))
    return f"{kind}: {load}, {options.replicas} replicas of {options.kv_tokens:,} tokens, {options.minutes:g} minutes"
