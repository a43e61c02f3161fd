"""A snapshot of what a fleet has learnt, as plain values that outlast the process.

Taking one stops the event loop, so numbers are copied in packed columns: per mirror a few passes over its releases,
none over its blocks. What a release names that was used again since is left in and sorted out by who restores it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import accumulate, repeat
from operator import attrgetter

import msgspec

from router.core.fleet import Fleet
from router.core.index import Index
from router.core.leases import Release
from router.core.replica import Replica
from router.core.residency import Mirror
from router.core.types import EngineReport, ReplicaId

LAYOUT = 2
"""Grows with every change of what is packed below, of `EngineReport`, or of how prompts and sessions are hashed:
hashes of another layout are found by nobody."""

_NOWHERE = 0xFFFF_FFFF
"""Place of a replica that had left when the snapshot was taken."""

_INT64 = range(-(1 << 63), 1 << 64)
"""What can be packed."""

_encode = msgspec.msgpack.Encoder().encode
_numbers = msgspec.msgpack.Decoder(list[int]).decode
_stamp, _answer, _start = attrgetter("stamp"), attrgetter("answer"), attrgetter("start_bytes")
_hashes, _ends, _kind = attrgetter("hashes"), attrgetter("ends_bytes"), attrgetter("kind")


class Releases(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A mirror's releases, a row for each, the least recently used first.

    `hashes` and `ends_bytes` are joined as they are in `Release`, the other columns are packed numbers.
    """

    stamps: bytes
    """Milliseconds of the clock that `Snapshot.taken_ms` was read from."""
    answers: bytes
    starts_bytes: bytes
    lengths: bytes
    """How many bytes of the next two columns belong to the row."""
    hashes: bytes
    ends_bytes: bytes
    kinds: bytes

    def __post_init__(self) -> None:
        """Raise ValueError when the columns do not fit each other."""
        numbers = (self.stamps, self.answers, self.starts_bytes, self.lengths, self.kinds)
        columns = {len(_numbers(column)) for column in numbers}
        blocks = {sum(_numbers(self.lengths)), len(self.hashes), len(self.ends_bytes)}
        if len(columns) != 1 or len(blocks) != 1:
            raise ValueError("columns of different lengths")


class Answers(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A mirror's resident answers, in packed columns."""

    keys: bytes
    stamps: bytes
    sizes_bytes: bytes


class Links(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A map from hashes to numbers, the least recently used first, in packed columns."""

    keys: bytes
    values: bytes


class KeptReplica(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of one replica."""

    replica: ReplicaId
    releases: Releases
    answers: Answers
    capacity_bytes: float
    report: EngineReport
    """The lasting part of its engine's last report. It tells an engine that restarts before the next one."""
    prefill: tuple[float, ...]
    """See `PrefillCost.state`."""
    decode: tuple[float, ...]
    """See `DecodeCost.state`."""


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a fleet has learnt."""

    taken_ms: int
    """When, by the clock of all stamps. That clock does not outlast the machine: only the differences to it count."""
    replicas: list[KeptReplica]
    turns: list[Links]
    """Ends of turns, see `tokens.turn_links`."""
    homes: list[Links]
    """Values are places in `replicas`."""
    sizes: dict[str, tuple[float, float, float, float]]
    """Model -> `TokenSize.learnt`."""
    returns: tuple[float, ...]
    """See `Returns.state`."""


def take(fleet: Fleet, now: float) -> Snapshot:
    """Take a snapshot. Blocks of requests in flight count as idle and most recently used."""
    steps = taking(fleet, now)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            taken: Snapshot = done.value
            return taken


def taking(fleet: Fleet, now: float) -> Generator[None, None, Snapshot]:
    """Take a snapshot in steps of milliseconds, between which the fleet may go on.

    Each replica, and each half of the links, is taken in one step and agrees with itself.
    """
    replicas, turns, homes = list(fleet), fleet.index.turns.halves(), fleet.index.homes.halves()
    place = {replica.replica_id: number for number, replica in enumerate(replicas)}
    kept: list[KeptReplica] = []
    for replica in replicas:
        kept.append(_kept(replica, now))
        yield
    kept_turns: list[Links] = []
    for half in turns:
        kept_turns.append(_turn_links(half))
        yield
    kept_homes: list[Links] = []
    for places in homes:
        kept_homes.append(Links(_packed(places.keys()), _packed(map(place.get, places.values(), repeat(_NOWHERE)))))
        yield
    sizes = {model: size.learnt for model, size in fleet.sizes.items()}
    return Snapshot(int(now * 1000), kept, kept_turns, kept_homes, sizes, fleet.returns.state)


def _kept(replica: Replica, now: float) -> KeptReplica:
    mirror = replica.mirror
    lasting = EngineReport().completed_by(replica.report)
    answers = Answers(*map(_packed, mirror.answers()))
    return KeptReplica(
        replica.replica_id,
        _releases(mirror.releases(now)),
        answers,
        mirror.capacity_bytes,
        lasting,
        replica.prefill.state,
        replica.decode.state,
    )


def _releases(releases: list[Release]) -> Releases:
    hashes = list(map(_hashes, releases))
    return Releases(
        _packed(map(_stamp, releases)),
        _packed(map(_answer, releases)),
        _packed(map(_start, releases)),
        _packed(map(len, hashes)),
        b"".join(hashes),
        b"".join(map(_ends, releases)),
        _packed(map(_kind, releases)),
    )


def _turn_links(half: Mapping[int, int]) -> Links:
    try:
        return Links(_packed(half.keys()), _packed(half.values()))
    except OverflowError:  # token counts come from engines, which may say anything
        sane = {key: value for key, value in half.items() if value in _INT64}
        return Links(_packed(sane.keys()), _packed(sane.values()))


def _packed(numbers: Iterable[int]) -> bytes:
    """Pack numbers. An array of the standard library takes three times as long."""
    return _encode(list(numbers))


def restore(fleet: Fleet, snapshot: Snapshot, now: float) -> None:
    """Give a fleet that has just been built what another one had learnt.

    Replicas that it does not have, and homes there, are left to `restore_replica`. Where its index is smaller than that
    of the other one, the most recently used part is kept.
    """
    there = {kept.replica for kept in snapshot.replicas if kept.replica in fleet}
    _restore_replicas(fleet, snapshot, there, now)
    for links in snapshot.turns:
        fleet.index.turns.put_links(_pairs(links))
    for model, learnt in snapshot.sizes.items():
        fleet.size_of(model).resume(*learnt)
    fleet.returns.resume(snapshot.returns)


def restore_replica(fleet: Fleet, snapshot: Snapshot, replica_id: ReplicaId, now: float) -> None:
    """Give a replica that came in after `restore` what was known of it."""
    _restore_replicas(fleet, snapshot, {replica_id}, now)


def _restore_replicas(fleet: Fleet, snapshot: Snapshot, wanted: set[ReplicaId], now: float) -> None:
    shift_ms = int(now * 1000) - snapshot.taken_ms
    for kept in snapshot.replicas:
        if kept.replica in wanted:
            replica = fleet[kept.replica]
            _fill(fleet.index, replica.mirror, kept, shift_ms)
            replica.observe(kept.report, foreign_tokens=0.0)
            replica.prefill.resume(kept.prefill)
            replica.decode.resume(kept.decode)
    there = [kept.replica if kept.replica in wanted else None for kept in snapshot.replicas]
    for links in snapshot.homes:
        for key, place in _pairs(links):
            home = there[place] if place < len(there) else None
            if home is not None:
                fleet.index.homes.put(key, home)


def _fill(index: Index, mirror: Mirror, kept: KeptReplica, shift_ms: int) -> None:
    """Fill a mirror and count it in again, with all it holds."""
    stamps = _numbers(kept.releases.stamps)
    shifted = list(_shifted(stamps, shift_ms))
    new = dict(zip(stamps, shifted, strict=True))
    rows = zip(*map(_numbers, (kept.answers.keys, kept.answers.stamps, kept.answers.sizes_bytes)), strict=True)
    answers = [(key, new[stamp], size) for key, stamp, size in rows if stamp in new]
    index.remove(mirror)
    mirror.resume(_unpacked(kept.releases, shifted), answers)
    mirror.capacity_bytes = kept.capacity_bytes
    mirror.evict_to(mirror.capacity_bytes)  # what ran may have been more than the engine had room for
    index.add(mirror)
    index.make_room()


def _shifted(stamps: Iterable[int], shift_ms: int) -> Iterator[int]:
    """Yield stamps by the new clock: in the same order, never twice the same, and none before that clock began."""
    last = -1
    for stamp in stamps:
        last = max(last + 1, stamp + shift_ms)
        yield last


def _unpacked(releases: Releases, stamps: list[int]) -> Iterator[Release]:
    numbers = map(_numbers, (releases.answers, releases.starts_bytes, releases.lengths, releases.kinds))
    answers, starts, lengths, kinds = numbers
    after = accumulate(lengths)
    for stamp, answer, start, length, kind, end in zip(stamps, answers, starts, lengths, kinds, after, strict=True):
        part = slice(end - length, end)
        yield Release(stamp, answer, releases.hashes[part], releases.ends_bytes[part], start, kind)


def _pairs(links: Links) -> Iterator[tuple[int, int]]:
    return zip(_numbers(links.keys), _numbers(links.values), strict=True)
