"""What another router tells may come more than once: a batch that Redis took is sent again when its answer was lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.fleet_asks import Ask
from tests.properties.fleet_player import ROOMY_BYTES, Player, Said, Start, packed

ASKS = [Ask(name, turns, session=name > 1) for name in range(4) for turns in (1, 3)]

loads = st.lists(st.tuples(st.sampled_from(["r0", "r1"]), st.tuples(*[st.integers(0, 9)] * 3)), max_size=2)


@st.composite
def bulletins(draw: st.DrawFn) -> list[tuple[str, Said]]:
    """Return what two routers say, one after the other. Their attempts' numbers grow, and each ends once at most."""
    said: list[tuple[str, Said]] = []
    under_way: dict[str, list[int]] = {"A": [], "B": []}
    number = 0
    for router in draw(st.lists(st.sampled_from("AB"), max_size=12)):
        sent = []
        for ask in draw(st.lists(st.sampled_from(ASKS), max_size=2)):
            number += 1
            sent.append((number, ask, draw(st.sampled_from(["r0", "r1", "gone"]))))
            under_way[router].append(number)
        ended = draw(st.lists(st.sampled_from(under_way[router]), unique=True, max_size=2)) if under_way[router] else []
        ends = tuple((one, draw(st.booleans()), 200) for one in ended)
        under_way[router] = [one for one in under_way[router] if one not in ended]
        oldest = min(under_way[router], default=number + 1)
        said.append((router, Said(tuple(sent), ends, tuple(draw(loads)), draw(st.booleans()), oldest)))
    return said


def beliefs(player: Player, now: float) -> bytes:
    """Return all that decisions are made from, decisions on all requests included."""
    open_there = [(router, sorted(peer.open), peer.loads) for router, peer in player.peers]
    mirrors = [(r.mirror.held_bytes, r.mirror.idle_bytes, len(r.mirror), tuple(r.peer_load)) for r in player.fleet]
    return packed((open_there, mirrors, [player.play(("explain", (ask, now))) for ask in ASKS]))


@given(bulletins(), st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_news_that_come_again_at_once_change_nothing(said: list[tuple[str, Said]], times: list[int]) -> None:
    once, more = (Player(Start(2, ROOMY_BYTES, 0)) for _ in range(2))
    for now, ((router, bulletin), count) in enumerate(zip(said, times, strict=False)):
        once.play(("hear", (router, bulletin, float(now))))
        for _ in range(count):
            more.play(("hear", (router, bulletin, float(now))))
        assert beliefs(more, float(now)) == beliefs(once, float(now))


@given(bulletins(), st.integers(0, 99))
def test_a_batch_that_is_sent_again_with_what_came_up_since_changes_nothing(
    said: list[tuple[str, Said]], where: int
) -> None:
    """As it is: its news come once more, in front of those of the next batch of the same router."""
    once, more = (Player(Start(2, ROOMY_BYTES, 0)) for _ in range(2))
    again: dict[str, Said] = {}
    for now, (router, bulletin) in enumerate(said):
        once.play(("hear", (router, bulletin, float(now))))
        before = again.pop(router, Said())
        both = Said(before.sent + bulletin.sent, before.ended + bulletin.ended, bulletin.loads, bulletin.whole,
                    bulletin.oldest_open)  # fmt: skip
        more.play(("hear", (router, both, float(now))))
        if now == where % (len(said) or 1):
            again[router] = bulletin
        assert beliefs(more, float(now)) == beliefs(once, float(now))


