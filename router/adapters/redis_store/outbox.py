"""What is to be told and written down, until Redis takes it. Bounded: the oldest goes first, and is counted."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from router.adapters.redis_store.encoding import Operation
from router.core.news import News, Opened

MAX_NEWS = 10_000
"""Ten seconds of 500 requests a second; older news is of no use to the others' ledgers."""

MAX_NEWS_BYTES = 8 << 20
"""Ten thousand chats of 32 kB; a long agent session counts for 10 kB."""

MAX_WRITES = 50_000
"""Turn ends of a minute's outage at 500 requests a second, 300 bytes each."""

BATCH = 64
"""Taken at once: the others work through a batch in about 5 ms, in which they do nothing else."""


class Write(NamedTuple):
    """An operation of write.lua."""

    name: bytes
    """Of the key."""
    operation: Operation
    home: int | None = None
    """The session's hash, where it is one that moves."""
    keep_s: int | None = None
    """Seconds after which nobody will look for it; None: as long as anything is kept."""


class Outbox:
    """Two queues. `dropped` counts what had to go."""

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._news_bytes = 0
        self._writes: deque[Write] = deque()
        self.dropped = {"news": 0, "turns": 0}

    def __len__(self) -> int:
        return len(self._news) + len(self._writes)

    @property
    def has_news(self) -> bool:
        """Whether there is something left to be told."""
        return bool(self._news)

    def tell(self, news: News) -> None:
        """Add something to be told to the other routers."""
        self._news.append(news)
        self._news_bytes += _size_bytes(news)
        self._trim()

    def _trim(self) -> None:
        while len(self._news) > MAX_NEWS or self._news_bytes > MAX_NEWS_BYTES:
            self._news_bytes -= _size_bytes(self._news.popleft())
            self.dropped["news"] += 1
        while len(self._writes) > MAX_WRITES:
            self._writes.popleft()
            self.dropped["turns"] += 1

    def write(self, write: Write) -> None:
        """Add something to be written down."""
        self._writes.append(write)
        self._trim()

    def take_news(self) -> list[News]:
        """Take the oldest news out."""
        taken = [self._news.popleft() for _ in range(min(BATCH, len(self._news)))]
        self._news_bytes -= sum(map(_size_bytes, taken))
        return taken

    def take_writes(self) -> list[Write]:
        """Take the oldest writes out."""
        return [self._writes.popleft() for _ in range(min(BATCH, len(self._writes)))]

    def give_back(self, news: list[News], writes: list[Write]) -> None:
        """Put what could not be sent back in front, as far as there is room."""
        self._news.extendleft(reversed(news))
        self._news_bytes += sum(map(_size_bytes, news))
        self._writes.extendleft(reversed(writes))
        self._trim()


def _size_bytes(news: News) -> int:
    return 100 + (len(news.hashes) + len(news.ends_bytes) if isinstance(news, Opened) else 0)
