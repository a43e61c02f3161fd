"""Behaviours 38, 39, 45."""

from tests.rig.stage import Stage
from tests.rig.client import chat


async def test_an_answer_says_who_why_and_how_much_was_warm(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    answer = await stage.ask(router, chat())
    assert answer.status == 200
    assert answer.replica == router.id_of(replica)
    assert answer.reason == "keyless"
    assert answer.matched_tokens == 0
