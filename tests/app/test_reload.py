"""Settings taken over by a router that runs: by signal, by a change of a file, by the admin API; all or none."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from pydantic import SecretStr

from router.app.process.reload import LIVE, compare, take
from router.app.process.reloads import Report
from router.app.settings.files import Watched, mark
from router.app.settings.model import Settings
from router.app.settings.sources import ConfigError, load
from router.app.settings.text import about
from router.sim.replica import SimReplica
from tests.contract.pages import DOCS, codes, table
from tests.redis_server import RedisServer
from tests.rig.client import chat
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

LIMIT = "max_body_bytes = 1024\n"
TOO_LARGE = chat("x" * 2000)

OK, FAILED = 'warmroute_reloads_total{result="ok"}', 'warmroute_reloads_total{result="failed"}'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "warmroute.toml"
    file.write_text("")
    return file


def replicas(*given: SimReplica) -> str:
    return f"replica = {[replica.url for replica in given]}\n".replace("'", '"')


async def known(served: Served, admin_port: int | None = None) -> list[str]:
    return sorted(replica["url"] for replica in (await served.fleet(admin_port))["replicas"])


@asynccontextmanager
async def reloading(*arguments: str, variables: Mapping[str, str] | None = None) -> AsyncIterator[Served]:
    """One that heeds signals by now."""
    async with serving(*arguments, variables=variables) as served:
        await served.metric(OK)
        yield served


# What asks for it


async def test_a_signal(stage: Stage, config: Path) -> None:
    first, second = await stage.replicas(2)
    write(config, replicas(first))
    async with reloading("--config", str(config)) as served:
        assert (await stage.ask(served, TOO_LARGE)).status == 200
        write(config, replicas(second) + LIMIT)
        served.send(signal.SIGHUP)
        await served.line(r"reload \(SIGHUP\): replica, max_body_bytes\n")
        assert await known(served) == [second.url]
        assert (await stage.ask(served, TOO_LARGE)).status == 413
        assert (await stage.ask(served, chat())).status == 200
        assert (await served.metric(OK), await served.metric(FAILED)) == (1, 0)
        assert await served.metric("warmroute_config_reload_success") == 1


def write(file: Path, text: str) -> None:
    file.write_text(text)


def remove(file: Path) -> None:
    file.unlink()


def replace(file: Path, text: str) -> None:
    """As editors and configuration tools do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.mark.parametrize("change", [write, replace])
async def test_a_changed_file(config: Path, change: Callable[[Path, str], None]) -> None:
    async with serving(variables={"WARMROUTE_CONFIG": str(config)}) as served:
        change(config, "drain_s = 7\n")
        await served.line(r"reload \(file change\): drain_s\n")
        change(config, "")
        await served.line(r"reload \(file change\): drain_s\n")
        assert await served.metric(OK) == 2


async def test_a_config_map(tmp_path: Path) -> None:
    """Kubernetes links the file to a folder that it links to a folder, and swaps that link."""
    for version, text in (("1", ""), ("2", "drain_s = 7\n")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "warmroute.toml").write_text(text)
    (tmp_path / "..data").symlink_to("1")
    config = tmp_path / "warmroute.toml"
    config.symlink_to("..data/warmroute.toml")
    async with reloading("--config", str(config)) as served:
        (tmp_path / "new").symlink_to("2")
        (tmp_path / "new").replace(tmp_path / "..data")
        await served.line(r"reload \(file change\): drain_s\n")


async def test_the_admin_api(config: Path) -> None:
    async with reloading("--config", str(config)) as served:
        write(config, "drain_s = 7\npolicy = 'least-load'\n")
        answer = await served.admin("POST", "/api/reload")
        assert answer.status_code == 200
        assert answer.json() == {"changed": ["drain_s"], "needs_restart": ["policy"]}
        write(config, "drain_s = 'long'\n")
        answer = await served.admin("POST", "/api/reload")
        assert answer.status_code == 422
        assert "drain_s" in answer.json()["error"]["message"]


# What becomes of it


async def test_a_bad_file_changes_nothing_and_says_why(stage: Stage, config: Path) -> None:
    first, second = await stage.replicas(2)
    write(config, replicas(first) + LIMIT)
    async with reloading("--config", str(config)) as served:
        for bad, why in (
            (replicas(second) + "drain_s = -1\n", r"drain_s \(file .*\): should be greater than or equal to 0"),
            (replicas(second) + "drain = 1\n", r"'drain' in file .* is no setting; did you mean drain_s\?"),
            ("replica = [", "is not valid TOML"),
        ):
            write(config, bad)
            served.send(signal.SIGHUP)
            await served.line(rf"reload \(SIGHUP\): all settings stay as they are: .*{why}")
        remove(config)
        served.send(signal.SIGHUP)
        await served.line("does not exist")
        assert await known(served) == [first.url]
        assert (await stage.ask(served, TOO_LARGE)).status == 413
        assert (await served.metric(OK), await served.metric(FAILED)) == (0, 4)
        assert await served.metric("warmroute_config_reload_success") == 0
        write(config, replicas(second))
        served.send(signal.SIGHUP)
        await served.line(r"reload \(SIGHUP\): replica, max_body_bytes\n")
        assert await served.metric("warmroute_config_reload_success") == 1


async def test_what_needs_a_restart_is_named_every_time(config: Path) -> None:
    async with reloading("--config", str(config)) as served:
        for text in ("policy = 'least-load'\ndrain_s = 7\n", "policy = 'round-robin'\n"):
            write(config, text)
            served.send(signal.SIGHUP)
            await served.line(r"reload \(SIGHUP\): drain_s\n")
            await served.line(r"reload \(SIGHUP\): a change needs a restart: policy\n")
        assert (await served.fleet())["policy"] == "affinity"
        write(config, "")
        served.send(signal.SIGHUP)
        await served.line(r"reload \(SIGHUP\): no setting has changed\n")


async def test_a_flag_and_the_environment_still_win(config: Path) -> None:
    async with reloading("--config", str(config), "--drain-s", "1", variables={"WARMROUTE_GRACE_S": "2"}) as served:
        write(config, "drain_s = 7\ngrace_s = 8\nmax_retries = 0\n")
        answer = await served.admin("POST", "/api/reload")
        assert answer.json()["changed"] == ["max_retries"]


async def test_streams_go_on(stage: Stage, config: Path) -> None:
    first, second = await stage.replicas(2, time_scale=1.0)
    write(config, replicas(first))
    async with reloading("--config", str(config)) as served:
        client = await stage.client(served)
        client.send(chat(stream=True, max_tokens=60, ignore_eos=True))
        answer = await client.head()
        await client.chunk(answer)
        write(config, replicas(second))
        served.send(signal.SIGHUP)
        await served.line("reload")
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        assert (await client.ask(chat())).status == 200, "on the same connection"


async def test_lines_of_another_level(config: Path) -> None:
    async with reloading("--config", str(config)) as served:
        write(config, "log_level = 'error'\n")
        served.send(signal.SIGHUP)
        assert (await served.admin("POST", "/api/reload")).status_code == 200
        write(config, "drain_s = 'x'\n")
        assert (await served.admin("POST", "/api/reload")).status_code == 422
        served.send(signal.SIGTERM)
        _, err = await served.ended()
    assert "stay as they are" not in err


async def test_a_signal_during_the_start_ends_nothing(config: Path) -> None:
    async with serving("--config", str(config)) as served:
        served.send(signal.SIGHUP)
        assert (await served.admin("POST", "/api/reload")).status_code == 200


# Certificates


def issue(authority: trustme.CA, file: Path, name: str = "localhost") -> None:
    pem = authority.issue_cert(name, common_name=os.urandom(4).hex()).private_key_and_cert_chain_pem.bytes()
    new = file.with_suffix(".new")
    new.write_bytes(pem)
    new.replace(file)


async def test_a_renewed_certificate_is_served_without_a_signal(stage: Stage, tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "server.pem"
    context = ssl.create_default_context()
    authority.configure_trust(context)
    issue(authority, file)
    replica = await stage.replica()

    async def served_certificate() -> bytes:
        client = await stage.client(served, tls=context)
        found = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        client.leave()
        return found

    async with serving("--replica", replica.url, "--ssl-certfile", str(file)) as served:
        before, kept = await served_certificate(), await stage.client(served, tls=context)
        issue(authority, file)
        await served.line(r"reload \(file change\)")
        after = await served_certificate()
        assert before != after
        file.write_bytes(file.read_bytes().split(b"-----BEGIN CERTIFICATE")[0])
        await served.line(r"reload \(file change\): all settings stay as they are: TLS: ")
        assert await served_certificate() == after
        assert (await kept.ask(chat())).status == 200


# Workers


@pytest.fixture
def redis() -> Iterator[list[str]]:
    with RedisServer() as server:
        yield ["--redis", server.url]


@pytest.mark.parametrize("ask", ["parent", "group", "file", "worker"])
async def test_all_workers_take_it(stage: Stage, redis: list[str], config: Path, ask: str) -> None:
    first, second = await stage.replicas(2)
    write(config, replicas(first))
    async with serving(*redis, "--config", str(config), workers=2) as served:
        write(config, replicas(second) + "policy = 'least-load'\n")
        if ask == "worker":
            answer = await served.admin("POST", "/api/reload", served.admin_ports[1])
            assert answer.json() == {"changed": ["replica"], "needs_restart": ["policy"]}
        elif ask != "file":
            served.send(signal.SIGHUP, whole_group=ask == "group")
        await served.line(r"reload \(.*\): replica\n")
        await served.line(r"reload \(.*\): a change needs a restart: policy\n")
        for admin_port in served.admin_ports:
            while await served.metric(OK, admin_port) < 1:
                pass
            assert await known(served, admin_port) == [second.url]
        served.send(signal.SIGTERM)
        _, err = await served.ended()
    assert "reload" not in err.replace("reload (", "", 2), "once, by the parent"


async def test_a_new_worker_gets_the_newest(stage: Stage, redis: list[str], config: Path) -> None:
    first, second = await stage.replicas(2)
    write(config, replicas(first))
    async with serving(*redis, "--config", str(config), workers=2) as served:
        write(config, replicas(second))
        served.send(signal.SIGHUP)
        await served.line(r"reload \(SIGHUP\): replica\n")
        write(config, "nonsense")
        served.send(signal.SIGHUP)
        await served.line(r"reload \(SIGHUP\): all settings stay as they are")
        for admin_port in served.admin_ports:
            while await served.metric(FAILED, admin_port) < 1:
                pass
            assert await served.metric("warmroute_config_reload_success", admin_port) == 0
        os.kill(served.pids[served.admin_ports[0]], signal.SIGKILL)
        assert await served.started() == served.admin_ports[0]
        assert await known(served, served.admin_ports[0]) == [second.url]


# In the house


async def test_limits_reach_connections_that_exist(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    before = router.house.settings
    changes = {
        "max_retries": 0,
        "silence_timeout_s": 3.0,
        "connect_timeout_s": 4.0,
        "upstream_keepalive_s": 1.0,
        "session_header": ("x-chat",),
        "engine_api_key": SecretStr("hunter2"),
    }
    report = take(router.house, before.model_copy(update=changes))
    assert (set(report.changed), report.needs_restart, report.error) == (set(changes), (), None)
    plane = router.house.plane
    assert (plane.limits.max_retries, plane.limits.silence_timeout_s) == (0, 3.0)
    assert plane.session_headers == (b"x-chat",)
    assert plane.authorization == b"Bearer hunter2"
    assert [(pool.connect_timeout_s, pool.idle_s) for pool in plane.pools.values()] == [(4.0, 1.0)]
    assert router.house.client.headers["authorization"] == "Bearer hunter2"
    assert router.house.client.timeout.connect == 4.0
    assert take(router.house, before).changed == report.changed
    assert "authorization" not in router.house.client.headers


async def test_only_live_settings_are_taken(stage: Stage) -> None:
    router = await stage.router()
    before = router.house.settings
    different = before.model_copy(update={"index_bytes": 1 << 20, "grace_s": 1.0})
    assert take(router.house, different) == Report(("grace_s",), ("index_bytes",))
    assert router.house.settings == before.model_copy(update={"grace_s": 1.0})


def test_settings_that_are_the_same_change_nothing() -> None:
    settings = Settings(api_keys=SecretStr("one"), replica=("http://a:1",))
    assert compare(settings, settings.model_copy()) == (settings, Report())


def test_a_secret_is_compared_by_its_value() -> None:
    assert compare(Settings(api_keys=SecretStr("one")), Settings(api_keys=SecretStr("two")))[1].changed == ("api_keys",)


def test_what_must_not_change_while_it_runs() -> None:
    assert not LIVE & {"host", "port", "admin_host", "admin_port", "workers", "redis", "redis_prefix", "state_file"}


# Files


def test_a_file_is_read_when_it_has_come_to_rest(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    watched = Watched({file: mark(file)})
    assert [watched.changed([file]) for _ in range(3)] == [False] * 3
    for size in range(1, 4):
        file.write_text("x" * size)
        assert not watched.changed([file]), "it is being written"
    assert watched.changed([file])
    assert watched.changed([file]), "until it is read"
    watched.read()
    assert not watched.changed([file])


def test_a_file_that_goes_and_comes_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    watched = Watched({file: mark(file)})
    file.unlink()
    assert [watched.changed([file]), watched.changed([file])] == [False, True]
    watched.read()
    file.write_text("x")
    assert [watched.changed([file]), watched.changed([file])] == [False, True]


def test_a_file_named_later_has_not_changed(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for file in (first, second):
        file.write_text("")
    watched = Watched({first: mark(first)})
    assert [watched.changed([first]), *(watched.changed([first, second]) for _ in range(3))] == [False] * 4
    second.write_text("x")
    assert [watched.changed([first, second]) for _ in range(2)] == [False, True]


def test_a_change_between_start_and_first_look_is_seen(config: Path) -> None:
    effective = load({}, config)
    assert effective.config is not None
    write(config, "drain_s = 7\n")
    watched = Watched({effective.config: effective.mark})
    assert [watched.changed([config]), watched.changed([config])] == [False, True]
    assert effective.again().settings.drain_s == 7


def test_it_is_read_again_from_the_same_places(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMROUTE_CONFIG", str(config))
    effective = load({"max_retries": "1"})
    monkeypatch.delenv("WARMROUTE_CONFIG")
    write(config, "drain_s = 7\nmax_retries = 3\n")
    again = effective.again()
    assert (again.settings.drain_s, again.settings.max_retries) == (7, 1)
    assert again.source["drain_s"] == f"file {config}"
    write(config, "drain_s = -1\n")
    with pytest.raises(ConfigError, match="drain_s"):
        again.again()


# The page


def test_the_page_lists_what_a_reload_changes() -> None:
    fields = Settings.model_fields.items()
    groups = [(name, about(field).group) for name, field in fields if name in LIVE]
    rows = table(DOCS / "how-to" / "stop-and-reload.md", "What a reload changes")
    listed = [(name, group) for group, names in rows for name in codes(names)]
    assert listed == groups
