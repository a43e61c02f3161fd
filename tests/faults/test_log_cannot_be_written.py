"""Nobody takes the log: its disk is full, its reader is gone, there never was one. Requests do not notice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.rig.client import chat, request
from tests.rig.served import serving
from tests.rig.stage import Stage

NOWHERE = {
    "full disk": 'exec "$0" "$@" 2>/dev/full',
    "none": 'exec "$0" "$@" 2>&- <&-',
    "reader gone": '{ "$0" "$@"; echo $? >"$CODE"; } 2>&1 >&3 3>&- | true',
}


@pytest.mark.parametrize("how", NOWHERE)
async def test_requests_go_on(stage: Stage, how: str, tmp_path: Path) -> None:
    replica = await stage.replica()
    script = NOWHERE[how] if how != "reader gone" else "exec 3>&1; " + NOWHERE[how]
    settings = ("--replica", replica.url, "--log-level", "debug")
    code_file = tmp_path / "code"
    async with serving(*settings, through=("sh", "-c", script), variables={"CODE": str(code_file)}) as served:
        client = await stage.client(served)
        for _ in range(200):
            assert (await client.ask(chat())).status == 200
        assert (await client.ask(request("/nothing", {}))).status == 404
        streamed = await client.ask(chat(stream=True))
        assert streamed.events()[-1] == "[DONE]"
        assert (await served.admin("GET", "/readyz")).status_code == 200
        served.send(signal.SIGTERM, whole_group=True)
        code, log = await served.ended()
    assert log == ""
    assert (int(code_file.read_text()) if code_file.exists() else code) in (0, -signal.SIGTERM)
