"""vLLM within --shutdown-timeout: /health says 200 and new requests get 500 'cannot schedule new futures ...'."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_no_work_was_done_so_the_request_goes_elsewhere(stage: Stage, form: Form, stream: bool) -> None:
    leaving, good = await stage.replicas(2)
    leaving.faults.set(Fault(FaultKind.SHUTDOWN_500))
    router = await stage.router(leaving, good)
    client = await stage.client(router)
    for _ in range(3):
        answer = await client.ask(form.request(stream=stream))
        assert (answer.status, answer.replica) == (200, router.id_of(good))
    assert len(leaving.requests) == 1, "it is left at once"


async def test_with_no_alternate_it_is_the_answer(stage: Stage) -> None:
    leaving = await stage.replica()
    leaving.faults.set(Fault(FaultKind.SHUTDOWN_500))
    router = await stage.router(leaving)
    answer = await stage.ask(router, chat())
    assert answer.status == 500
    assert answer.json()["error"]["message"] == "cannot schedule new futures after shutdown"
