"""The settings: what is accepted, what is refused and with which words, and which source wins."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize, SecretStr

from router.app.settings.model import Settings
from router.app.settings.sources import ConfigError, flag_of, load, variable_of

PEM = "-----BEGIN CERTIFICATE-----\n"


class Sample(NamedTuple):
    """A different valid value for each source, and what the model makes of them."""

    file: Any
    environment: str
    flag: Any
    expected: tuple[Any, Any, Any]  # file, environment, flag


def simple(file: Any, environment: Any, flag: Any) -> Sample:
    return Sample(file, str(environment), str(flag), (file, environment, flag))


SAMPLES = {
    "replica": Sample(
        ["http://a:1", "http://b:1"],
        "http://C:2/, http://d",
        ["https://e"],
        (("http://a:1", "http://b:1"), ("http://c:2", "http://d:80"), ("https://e:443",)),
    ),
    "discover": Sample(
        ["dns:a:1"], "dns:b:2, dns:c:3", ["dns:d:4"], (("dns:a:1",), ("dns:b:2", "dns:c:3"), ("dns:d:4",))
    ),
    "discover_interval_s": simple(1.0, 2.0, 3.0),
    "alias": Sample(["a=b"], "c=d,e=f", ["g=h"], (("a=b",), ("c=d", "e=f"), ("g=h",))),
    "unknown_model": simple("forward", "refuse", "forward"),
    "warm_up_tokens": simple(1, 2, 3),
    "touch": simple(True, False, True),
    "touch_bytes": Sample("1MiB", "2MiB", "3MiB", (ByteSize(1 << 20), ByteSize(2 << 20), ByteSize(3 << 20))),
    "touch_ratio": simple(0.01, 0.05, 0.1),
    "health_interval_s": simple(0.5, 2.0, 3.0),
    "health_failures": simple(1, 2, 4),
    "slow_start_s": simple(0.0, 1.0, 2.0),
    "policy": simple("session-hash", "least-load", "round-robin"),
    "session_header": Sample(["X-A"], '["X-B", "x-c"]', ["x-d", "x-e"], (("x-a",), ("x-b", "x-c"), ("x-d", "x-e"))),
    "prefill_tokens_per_s": simple(100.0, 200.5, 300.0),
    "index_bytes": Sample(2**20, "2MiB", "4194304", (ByteSize(2**20), ByteSize(2**21), ByteSize(2**22))),
    "engine_api_key": Sample("f", "e", "g", (SecretStr("f"), SecretStr("e"), SecretStr("g"))),
    "host": simple("0.0.0.0", "::1", "localhost"),
    "port": simple(1, 2, 3),
    "admin_host": simple("10.0.0.1", "10.0.0.2", "10.0.0.3"),
    "admin_port": simple(4, 5, 6),
    "max_body_bytes": Sample("1KiB", "2048", "3KiB", (ByteSize(1024), ByteSize(2048), ByteSize(3072))),
    "max_bodies_bytes": Sample("1MiB", "2MiB", "3MiB", (ByteSize(1 << 20), ByteSize(2 << 20), ByteSize(3 << 20))),
    "max_retries": simple(0, 1, 3),
    "connect_timeout_s": simple(0.5, 1.5, 2.5),
    "silence_timeout_s": simple(10.0, 20.0, 30.0),
    "vanish_timeout_s": simple(10.0, 20.0, 40.0),
    "keepalive_s": simple(11, 12, 13),
    "upstream_keepalive_s": simple(1.0, 2.0, 3.0),
    "drain_s": simple(1.0, 2.0, 3.0),
    "grace_s": simple(0.0, 1.0, 2.5),
    "scrape_interval_s": simple(0.5, 2.0, 3.0),
    "models_interval_s": simple(1.0, 2.0, 3.0),
    "log_level": simple("error", "warning", "debug"),
    "queue_depth_s": simple(0.0, 0.5, 2.0),
    "max_queue_wait_s": simple(10.0, 20.0, 30.0),
    "max_queued_requests": simple(10, 20, 30),
    "max_queued_bytes": Sample("1MiB", "2MiB", "3MiB", (ByteSize(1 << 20), ByteSize(2 << 20), ByteSize(3 << 20))),
    "tenant_header": Sample(["X-T"], "x-u,X-V", ["x-w"], (("x-t",), ("x-u", "x-v"), ("x-w",))),
    "sse_keepalive_s": simple(5.0, 10.0, 15.0),
    "api_keys": Sample("f" * 16, "e" * 16, "g" * 16, (SecretStr("f" * 16), SecretStr("e" * 16), SecretStr("g" * 16))),
    "api_keys_file": Sample("a.toml", "b.toml", "c.toml", (Path("a.toml"), Path("b.toml"), Path("c.toml"))),
    "key_requests_per_minute": simple(1, 2, 3),
    "key_tokens_per_minute": simple(4, 5, 6),
    "key_concurrent_requests": simple(7, 8, 9),
    "admin_token": Sample("f" * 8, "e" * 8, "g" * 8, (SecretStr("f" * 8), SecretStr("e" * 8), SecretStr("g" * 8))),
    "cors_origin": Sample(["https://A"], "http://b,*", ["*"], (("https://a",), ("http://b", "*"), ("*",))),
    "trusted_proxy": Sample(
        ["10.0.0.1/8"],
        "::1, 192.168.0.0/16",
        ["1.2.3.4"],
        (("10.0.0.0/8",), ("::1/128", "192.168.0.0/16"), ("1.2.3.4/32",)),
    ),
    "max_head_bytes": Sample("1KiB", "2048", "3KiB", (ByteSize(1024), ByteSize(2048), ByteSize(3072))),
    "max_url_bytes": Sample("1KiB", "2048", "3KiB", (ByteSize(1024), ByteSize(2048), ByteSize(3072))),
    "head_timeout_s": simple(1.0, 2.0, 3.0),
    "body_timeout_s": simple(1.0, 2.0, 3.0),
    "max_connections": simple(10, 20, 30),
    "redis_prefix": simple("a", "b:c", "d.e"),
    "redis_secret": Sample("f" * 8, "e" * 8, "g" * 8, (SecretStr("f" * 8), SecretStr("e" * 8), SecretStr("g" * 8))),
    "redis_deadline_ms": simple(1.0, 2.5, 1000.0),
    "redis_ttl_s": simple(60, 120, 2_592_000),
    "kv_events": simple("auto", "off", "auto"),
    "kv_events_endpoint": Sample(
        ["tcp://*:5557"],
        "tcp://*:5557?replay=5558,http://a:1=tcp://a:5557",
        ["tcp://b:1?topic=t"],
        (("tcp://*:5557",), ("tcp://*:5557?replay=5558", "http://a:1=tcp://a:5557"), ("tcp://b:1?topic=t",)),
    ),
    "kv_events_bind": simple("tcp://*:5557", "tcp://127.0.0.1:1", "tcp://[::]:2"),
    "tokenizer": Sample(["/m"], "a=/m,/n", ["b=/o"], (("/m",), ("a=/m", "/n"), ("b=/o",))),
    "chat_template": Sample("a.jinja", "b.jinja", "c.jinja", (Path("a.jinja"), Path("b.jinja"), Path("c.jinja"))),
    "tokenizer_deadline_ms": simple(1.0, 2.5, 100.0),
    "otlp_endpoint": simple("http://a:4318", "http://b:4318", "https://c/v1/traces"),
    "trace_ratio": simple(0.0, 0.5, 0.25),
    "record": Sample("a.jsonl", "b.jsonl", "c.jsonl", (Path("a.jsonl"), Path("b.jsonl"), Path("c.jsonl"))),
    "record_max_bytes": Sample("1MiB", "2MiB", "3MiB", (ByteSize(1 << 20), ByteSize(2 << 20), ByteSize(3 << 20))),
    "record_files": simple(1, 2, 3),
    "log_requests": Sample(False, "true", False, (False, True, False)),
}
TLS_SETTINGS = {"ssl_certfile", "ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs"}
SHARING_SETTINGS = {"redis", "workers", "state_file"}  # these depend on each other; see below
SOURCES = ("file", "environment", "flag")  # weakest first


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:

    for name in [name for name in os.environ if name.upper().startswith("WARMROUTE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


def write_toml(path: Path, values: dict[str, Any]) -> Path:
    """JSON's strings, numbers, booleans and lists are TOML's too."""
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return path


def test_every_setting_has_a_sample() -> None:
    assert set(SAMPLES) | TLS_SETTINGS | SHARING_SETTINGS == set(Settings.model_fields)


def test_the_defaults_are_valid() -> None:
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    assert load({}).settings == Settings(**defaults)
    assert set(load({}).source.values()) == {"default"}


@given(given_by=st.fixed_dictionaries({name: st.sets(st.sampled_from(SOURCES)) for name in SAMPLES}))
def test_flag_beats_environment_beats_file_beats_default(folder: Path, given_by: dict[str, set[str]]) -> None:
    values: dict[str, dict[str, Any]] = {
        source: {name: getattr(SAMPLES[name], source) for name, sources in given_by.items() if source in sources}
        for source in SOURCES
    }
    config = write_toml(folder / "warm.toml", values["file"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values["environment"].items():
            patch.setenv(variable_of(name), value)
        effective = load(values["flag"], config)
    for name, sources in given_by.items():
        strongest = max((SOURCES.index(source) for source in sources), default=None)
        actual = (getattr(effective.settings, name), effective.source[name])
        if strongest is None:
            assert actual == (Settings.model_fields[name].default, "default"), name
        else:
            label = f"file {config}" if strongest == 0 else SOURCES[strongest]
            assert actual == (SAMPLES[name].expected[strongest], label), name


def test_the_file_is_also_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = write_toml(tmp_path / "named.toml", {"port": 1})
    given_as_flag = write_toml(tmp_path / "flag.toml", {"port": 2})
    monkeypatch.setenv("WARMROUTE_CONFIG", str(named))
    assert load({}).settings.port == 1
    assert load({}, given_as_flag).settings.port == 2


def test_constructing_settings_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMROUTE_PORT", "1")
    assert Settings().port == 8080


def test_an_empty_variable_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMROUTE_PORT", "")
    assert load({}).source["port"] == "default"


def test_variables_of_kubernetes_services_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "WARMROUTE_SERVICE_HOST": "10.0.0.7",
        "WARMROUTE_SERVICE_PORT": "8080",
        "WARMROUTE_SERVICE_PORT_HTTP": "8080",
        "WARMROUTE_PORT": "tcp://10.0.0.7:8080",
        "WARMROUTE_PORT_8080_TCP": "tcp://10.0.0.7:8080",
        "WARMROUTE_PORT_8080_TCP_ADDR": "10.0.0.7",
        "WARMROUTE_REDIS_SERVICE_HOST": "10.0.0.8",
        "WARMROUTE_REDIS_PORT": "tcp://10.0.0.8:6379",
    }.items():
        monkeypatch.setenv(name, value)
    assert set(load({}).source.values()) == {"default"}


@pytest.fixture
def tls_files(tmp_path: Path) -> Iterator[dict[str, str]]:
    names = ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
    for name in names:
        (tmp_path / name).write_text(PEM)
    yield {name: str(tmp_path / name) for name in names} | {"ssl_keyfile_password": "secret"}


def test_tls_files_are_taken_from_every_source(tls_files: dict[str, str], tmp_path: Path) -> None:
    for effective in (load(tls_files), load({}, write_toml(tmp_path / "tls.toml", tls_files))):
        assert effective.settings.ssl_certfile == Path(tls_files["ssl_certfile"])
        assert effective.settings.ssl_ca_certs == Path(tls_files["ssl_ca_certs"])
        assert effective.settings.ssl_keyfile_password == SecretStr("secret")


@pytest.mark.parametrize("name", sorted(TLS_SETTINGS - {"ssl_certfile"}))
def test_a_tls_setting_alone_is_refused(name: str, tls_files: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no meaning without ssl_certfile"):
        load({name: tls_files[name]})


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://host:8000", "http://host:8000"),
        ("HTTP://Host:8000/", "http://host:8000"),
        ("http://host", "http://host:80"),
        ("https://vllm-0.vllm.svc.cluster.local", "https://vllm-0.vllm.svc.cluster.local:443"),
        ("http://[FE80::1]:8000", "http://[fe80::1]:8000"),
    ],
)
def test_a_replica_url_is_normalised(url: str, normal: str) -> None:
    assert Settings(replica=(url,)).replica == (normal,)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("127.0.0.1:8000", "must have the form http://host:port"),
        ("host", "must have the form http://host:port"),
        ("ftp://host:21", "must have the form http://host:port"),
        ("http://", "must have the form http://host:port"),
        ("http://host:8000/v1", "must end after the port"),
        ("http://host:8000?x=1", "has the option 'x', which no replica has"),
        ("http://host:8000#x", "must end after the port"),
        ("http://host:0", "has port 0"),
        ("http://host:65536", "is no URL"),
        ("http://host:http", "is no URL"),
        ("http://[::1:8000", "is no URL"),
        ("http://a b:8000", "has no valid host name"),
        ("http://a\tb:8000", "has control characters"),
    ],
)
def test_a_bad_replica_url_is_named(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"replica": [url]})
    assert str(refused.value).startswith(f"replica (flag --replica): {url!r} {says}")


def test_the_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="must not carry a user name") as refused:
        load({"replica": ["http://user:hunter2@host:8000"]})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("second", ["http://a:80", "http://A/", "http://a"])
def test_a_replica_given_twice_is_refused(second: str) -> None:
    with pytest.raises(ConfigError, match="http://a:80 is given twice"):
        load({"replica": ["http://a", second]})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"port": "65536"}, "port (flag --port): should be less than or equal to 65535, not '65536'"),
        ({"port": "http"}, "port (flag --port): should be a valid integer, not 'http'"),
        ({"upstream_keepalive_s": "5"}, "upstream_keepalive_s (flag --upstream-keepalive-s): should be less than 5"),
        ({"connect_timeout_s": "0"}, "connect_timeout_s (flag --connect-timeout-s): should be greater than 0"),
        ({"connect_timeout_s": "nan"}, "connect_timeout_s (flag --connect-timeout-s): should be"),
        ({"max_retries": "6"}, "max_retries (flag --max-retries): should be less than or equal to 5"),
        ({"max_body_bytes": "12parsec"}, "max_body_bytes (flag --max-body-bytes): could not interpret byte unit"),
        ({"policy": "afinity"}, "policy (flag --policy): should be 'affinity', "),
        ({"session_header": ["x y"]}, "session_header (flag --session-header): 'x y' is no HTTP header name"),
        ({"session_header": ["x-a", "X-A"]}, "session_header (flag --session-header): x-a is given twice"),
        ({"host": ""}, "host (flag --host): "),
        ({"ssl_certfile": "/no/such"}, "ssl_certfile (flag --ssl-certfile): does not point to a file"),
        ({"port": "9090"}, "port and admin_port are both 9090"),
        ({"port": "-1", "max_retries": "9"}, "(and 1 more)"),
    ],
)
def test_a_bad_value_is_told_with_its_place(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(flags)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_same_port_on_two_addresses_or_free_ports_is_fine() -> None:
    assert Settings(port=9090, host="10.0.0.1").port == 9090
    assert Settings(port=0, admin_port=0).admin_port == 0


def test_a_wrong_policy_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"not 'afinity'; did you mean affinity\?"):
        load({"policy": "afinity"})


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("prot = 1", "'prot' in file {file} is no setting; did you mean port?"),
        ("max-retries = 1", "'max-retries' in file {file} is no setting; did you mean max_retries?"),
        ("[router]\nport = 1", "'router' in file {file} is no setting"),
        ("port = true", "port (file {file}): must not be true"),
        ("port = 1.5", "port (file {file}): should be a valid integer"),
        ("host = 5", "host (file {file}): should be a valid string, not 5"),
        ("replica = 5", "replica (file {file}): should be a list of strings, not 5"),
        ("replica = [5]", "replica (file {file}): should be a valid string, not 5"),
        ("log_requests = 7", "log_requests (file {file}): should be a valid boolean"),
        ("port = [", "config file {file} is not valid TOML: "),
        ("port = 1\nport = 2", "config file {file} is not valid TOML: "),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(toml: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "warm.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as refused:
        load({}, file)
    assert str(refused.value).startswith(says.format(file=file))
    assert "\n" not in str(refused.value)


def test_a_file_that_is_missing_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config file .*none.toml does not exist"):
        load({}, tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"config file .*bytes.toml cannot be read"):
        load({}, tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("WARMROUTE_PROT", "1", "environment variable WARMROUTE_PROT is no setting; did you mean WARMROUTE_PORT?"),
        ("warmroute_prot", "1", "environment variable warmroute_prot is no setting; did you mean WARMROUTE_PORT?"),
        ("WARMROUTE_PORT", "x", "port (environment WARMROUTE_PORT): should be a valid integer, not 'x'"),
        ("WARMROUTE_REPLICA", '["http://a"', "replica (environment WARMROUTE_REPLICA): begins like a JSON list"),
        ("WARMROUTE_REPLICA", "http://a,x", "replica (environment WARMROUTE_REPLICA): 'x' must have the form"),
    ],
)
def test_a_mistake_in_the_environment_is_told(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as refused:
        load({})
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("name", ["engine_api_key", "ssl_keyfile_password"])
def test_a_secret_is_not_in_the_error(name: str, tmp_path: Path) -> None:
    config = write_toml(tmp_path / "warm.toml", {name: 271828})
    with pytest.raises(ConfigError) as refused:
        load({}, config)
    assert name in str(refused.value)
    assert "271828" not in str(refused.value)


def test_settings_cannot_be_changed_or_extended() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1
    with pytest.raises(ValueError, match="Extra inputs"):
        Settings(prot=1)  # type: ignore[call-arg]


def test_flags_are_the_names_with_hyphens() -> None:
    assert flag_of("max_body_bytes") == "--max-body-bytes"
    assert variable_of("max_body_bytes") == "WARMROUTE_MAX_BODY_BYTES"


# Shared state


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "rediss://user:p%40ss@redis.example:6380/3",
        "redis+sentinel://:secret@a:26379,b,c:26380/mymaster/1",
        "redis+cluster://a:7000,b:7001",
    ],
)
def test_redis_is_where_its_url_says(url: str) -> None:
    settings = load({"redis": url, "workers": "3"}).settings
    assert settings.redis is not None
    assert settings.redis.get_secret_value() == url
    assert settings.workers == 3


@pytest.mark.parametrize(
    "url", ["localhost:6379", "http://h:1", "redis://:hunter2@h:port", "redis+sentinel://:hunter2@h"]
)
def test_a_redis_url_that_makes_no_sense_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="redis") as raised:
        load({"redis": url})
    assert "hunter2" not in str(raised.value)


def test_workers_need_redis_and_say_so() -> None:
    with pytest.raises(ConfigError, match="2 workers need redis"):
        load({"workers": "2"})


def test_the_workers_admin_ports_leave_the_client_port_alone() -> None:
    redis = {"redis": "redis://h", "workers": "4"}
    with pytest.raises(ConfigError, match="port 9092 is among the workers' admin ports, 9090 to 9093"):
        load(redis | {"port": "9092"})
    with pytest.raises(ConfigError, match="leaves no room"):
        load(redis | {"admin_port": "65533"})
    assert load(redis | {"port": "9094"}).settings.port == 9094


def test_a_state_file_is_for_a_router_without_redis() -> None:
    assert load({"state_file": "map.state"}).settings.state_file == Path("map.state")
    with pytest.raises(ConfigError, match="state_file has no meaning with redis"):
        load({"state_file": "map.state", "redis": "redis://h"})
