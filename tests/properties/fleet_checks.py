"""What must hold of a fleet, as a model of it says."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import pytest

from router.core.bounded import LINK_BYTES
from router.core.holders import HOLDER_BYTES
from router.core.replica import Replica
from router.core.residency import ENTRY_BYTES
from router.core.shortlist import LARGE
from router.core.ticket import Ticket
from router.core.types import Decision, Outcome, OutcomeKind, Reason, Score
from tests.properties.fleet_asks import ENGINE_BLOCK_TOKENS, Ask, prompt_of, request_of, token_ids_of
from tests.properties.fleet_model import Allowed, Model, ModelReplica
from tests.properties.fleet_player import ROOMY_BYTES, Player

Known = tuple[int, str | None, list[tuple[str, int, int, float]]]
"""What `Player` says that is known of a request: its tokens, its home, and a row for each candidate."""


def leading(hashes: list[int], present: set[int]) -> int:
    """Return how many leading blocks are present."""
    return next((index for index, block in enumerate(hashes) if block not in present), len(hashes))


# Decisions


def check_decision(model: Model, roomy: bool, ask: Ask, decision: Decision, allowed: Allowed | str) -> None:
    """Check who was chosen, and what each is believed to hold."""
    assert not isinstance(allowed, str), f"{decision.replica} instead of {allowed}"
    names = [score.replica for score in decision.scores]
    assert len(names) == len(set(names))
    assert decision.replica in names
    assert set(names) <= allowed.candidates
    if len(model.replicas) <= LARGE:
        assert set(names) == allowed.candidates
    if allowed.pinned in allowed.candidates:
        assert decision.replica == allowed.pinned
    assert (decision.reason is Reason.LAST_RESORT) <= allowed.last_resort
    assert decision.reason in (Reason.LAST_RESORT, Reason.FAILOVER) or not allowed.last_resort
    assert 0 <= decision.reloaded_tokens <= decision.matched_tokens <= decision.prompt_tokens
    if ask.tokens and request_of(ask).tokens is not None:
        assert decision.prompt_tokens == len(token_ids_of(ask))
    for score in decision.scores:
        _check_score(model, roomy, ask, score)
    _check_tokens(model, ask, decision)
    if roomy and ask.stored is None and request_of(ask).session in model.homes:
        assert decision.home == model.homes[request_of(ask).session or 0]


def _check_score(model: Model, roomy: bool, ask: Ask, score: Score) -> None:
    assert score.total_s >= 0.0
    replica, prompt = model.replicas[score.replica], prompt_of(ask)
    if prompt is None:
        assert score.matched_blocks == 0
    elif not replica.live:
        most = leading(prompt.hashes, model.present(replica))
        assert score.matched_blocks <= most, "what was never sent there"
        if roomy and not replica.forgetful:
            assert score.matched_blocks == most, "what was sent there is forgotten"


def _check_tokens(model: Model, ask: Ask, decision: Decision) -> None:
    replica = model.replicas[decision.replica]
    if replica.live and request_of(ask).tokens is not None:
        assert (decision.matched_tokens, decision.reloaded_tokens) == replica.told_tokens(ask)
        return
    assert decision.matched_tokens < decision.prompt_tokens
    blocks = next(score.matched_blocks for score in decision.scores if score.replica == decision.replica)
    if not replica.live and not blocks:
        assert decision.matched_tokens == 0
    if replica.live and not blocks:
        assert decision.matched_tokens <= replica.told_blocks * ENGINE_BLOCK_TOKENS


def check_decides_alike(before: Known | None, after: Known | None) -> None:
    """Check that a router that was started again knows of a request what the one before knew."""
    if before is None or after is None or [row[0] for row in before[2]] != [row[0] for row in after[2]]:
        return  # not the same replicas may be asked: of their health nothing is kept
    assert before == after


# Books


def check_books(model: Model, player: Player) -> None:
    """Check that what is counted is what the model has under way."""
    fleet = player.fleet
    assert [replica.replica_id for replica in fleet] == list(model.replicas)
    assert set(player.open) == set(model.open)
    assert {waiting.number for waiting in player.admission.queue} == model.waiting
    for name, replica in model.replicas.items():
        _check_ledger(model, replica, fleet[name])
        _check_health(replica, fleet[name])
        assert tuple(fleet[name].peer_load) == replica.peer_load


def _check_ledger(model: Model, replica: ModelReplica, books: Replica) -> None:
    mine, ledger = model.on(replica), books.ledger
    assert ledger.streams == len(mine)
    assert ledger.context_tokens == sum(attempt.prompt_tokens for attempt in mine)
    waiting = [attempt for attempt in mine if not attempt.begun]
    # The end of a prefill that is answered in one piece is not heard, so those are counted until it must be over.
    sure = [attempt for attempt in waiting if attempt.ask.streaming]
    assert len(sure) <= len(ledger.pending) <= len(waiting)
    least, most = (sum(attempt.uncached_tokens for attempt in some) for some in (sure, waiting))
    assert least <= ledger.uncached_tokens <= most
    assert len(ledger.unanswered) == len(waiting)
    assert ledger.prefill_s == pytest.approx(sum(entry.prefill_s for entry in ledger.pending.values()), abs=1e-9)
    assert ledger.pending or ledger.prefill_s == 0.0
    assert books.held_s(9.0) == 0.0


def _check_health(replica: ModelReplica, books: Replica) -> None:
    assert (str(books.health.state), books.health.cause) == (replica.state, replica.cause)
    assert books.health.up == replica.up
    assert bool(books.report.asleep) == replica.asleep


def check_memory(model: Model, player: Player) -> None:
    """Check mirrors against their engines' caches, and the index against its budget."""
    fleet, index = player.fleet, player.fleet.index
    for name, replica in model.replicas.items():
        mirror = fleet[name].mirror
        assert mirror.idle_bytes >= 0
        assert mirror.held_bytes + mirror.idle_bytes <= max(mirror.capacity_bytes, mirror.held_bytes)
        held: dict[int, int] = {}
        for attempt in model.attempts():
            if attempt.replica is replica and not attempt.stale:
                held |= attempt.sizes_bytes
        assert mirror.held_bytes <= sum(held.values())
        assert not is_roomy(player) or mirror.held_bytes == sum(held.values())
    old, young = index.homes.halves()
    assert not is_roomy(player) or old | young == model.homes
    blocks, links = sum(len(replica.mirror) for replica in fleet), len(index.turns) + len(index.homes)
    watched = fleet._shortlist.holders is not None
    assert watched or len(fleet) <= LARGE
    entry_bytes = ENTRY_BYTES + (HOLDER_BYTES if watched else 0)
    assert index.size_bytes == blocks * entry_bytes + links * LINK_BYTES
    assert index.size_bytes <= player.start.index_bytes


def check_closed(player: Player, ticket: Ticket, now: float) -> None:
    """Check that an attempt that has ended can't end again."""
    with pytest.raises(RuntimeError):
        player.fleet.settle(ticket, Outcome(OutcomeKind.DIED), now)


def check_nothing_under_way(player: Player) -> None:
    """Check that all counts are zero, exactly."""
    for replica in player.fleet:
        ledger = replica.ledger
        assert (ledger.streams, ledger.uncached_tokens, ledger.context_tokens) == (0, 0, 0)
        assert (ledger.prefill_s, ledger.pending, ledger.unanswered) == (0.0, {}, {})
        assert tuple(replica.peer_load) == (0, 0, 0)
        assert replica.mirror.held_bytes == 0


def check_nothing_left(player: Player) -> None:
    """Check that a fleet whose replicas have all left, with nothing under way, knows none of them any more."""
    holders = player.fleet._shortlist.holders
    assert len(player.fleet) == 0
    assert holders is None or len(holders) == 0
    assert player.fleet.index.size_bytes == (len(player.fleet.index.turns) + len(player.fleet.index.homes)) * LINK_BYTES
    assert not replicas_reached_from([player])


def replicas_reached_from(roots: Iterable[object]) -> list[Replica]:
    """Return all replicas that objects refer to, however far away."""
    found: list[Replica] = []
    seen: dict[int, object] = {}
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen[id(one)] = one
        if isinstance(one, Replica):
            found.append(one)
        left += gc.get_referents(one)
    return found


def is_roomy(player: Player) -> bool:
    """Tell whether the index has room for all that may ever be sent."""
    return player.start.index_bytes == ROOMY_BYTES
