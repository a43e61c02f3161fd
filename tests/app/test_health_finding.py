"""The few settings that `warmroute health` reads by itself are what `serve` makes of the same environment and file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.app.health.asking import UnwellError
from router.app.health.finding import DEFAULTS, own_url, plainly
from router.app.settings.model import Settings
from router.app.settings.sources import ConfigError, load

TEXTS = st.one_of(
    st.sampled_from(["", "0.0.0.0", "::", "localhost", "8080", "0", "65535", "65536", "08080", "+1", "1_0", "٣"]),
    st.sampled_from([" 8080", "8080 ", "1.0", "true", "a b", "a/b", "tcp://10.0.0.7:8080", "/dev/null", __file__]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)
NAMES = st.sampled_from([f"WARMROUTE_{name.upper()}" for name in DEFAULTS] + ["warmroute_port", "Warmroute_Host"])


def serves(environ: dict[str, str], config: str | None = None) -> dict[str, object] | None:
    """What `serve` makes of it; None where it refuses."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("WARMROUTE_")]:
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        try:
            settings = load({}, Path(config) if config else None).settings
        except ConfigError:
            return None
    return {name: getattr(settings, name) for name in DEFAULTS}


def as_text(values: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def test_the_defaults_are_those_of_the_settings() -> None:
    assert {name: Settings.model_fields[name].default for name in DEFAULTS} == DEFAULTS


@given(environ=st.dictionaries(NAMES, TEXTS, max_size=4))
@example(environ={"WARMROUTE_PORT": "9000", "WARMROUTE_HOST": "0.0.0.0", "WARMROUTE_SSL_CERTFILE": __file__})
@example(environ={"WARMROUTE_PORT": "tcp://10.0.0.7:8080"})
def test_what_is_read_from_the_environment_is_what_serve_reads(environ: dict[str, str]) -> None:
    read, served = plainly(None, environ), serves(environ)
    if read is not None and served is not None:
        assert as_text(read) == as_text(served)


@given(
    file=st.dictionaries(
        st.sampled_from([*DEFAULTS]), st.one_of(TEXTS, st.integers(-1, 70_000), st.booleans(), st.floats(0, 9))
    ),
    environ=st.dictionaries(NAMES, TEXTS, max_size=2),
)
def test_what_is_read_from_the_file_is_what_serve_reads(
    tmp_path_factory: pytest.TempPathFactory, file: dict[str, object], environ: dict[str, str]
) -> None:
    import json

    config = tmp_path_factory.getbasetemp() / "warmroute.toml"
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in file.items()))
    read, served = plainly(str(config), environ), serves(environ, str(config))
    if read is not None and served is not None:
        assert as_text(read) == as_text(served)


@pytest.mark.parametrize(
    "environ",
    [{}, {"WARMROUTE_PORT": "9000"}, {"WARMROUTE_HOST": "::1", "WARMROUTE_SSL_CERTFILE": __file__}, {"PATH": "/bin"}],
)
def test_usual_settings_are_plain(environ: dict[str, str]) -> None:
    assert plainly(None, environ) is not None


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, "http://127.0.0.1:8080/readyz"),
        ({"WARMROUTE_HOST": "0.0.0.0", "WARMROUTE_PORT": "81"}, "http://127.0.0.1:81/readyz"),
        ({"WARMROUTE_HOST": "::"}, "http://[::1]:8080/readyz"),
        ({"WARMROUTE_HOST": "10.0.0.5", "WARMROUTE_SSL_CERTFILE": __file__}, "https://10.0.0.5:8080/readyz"),
        ({"WARMROUTE_SSL_CERTFILE": __file__, "WARMROUTE_SSL_CA_CERTS": __file__}, "http://127.0.0.1:9090/readyz"),
    ],
)
def test_the_url_of_the_router(environ: dict[str, str], url: str) -> None:
    assert own_url(environ=environ) == url


def test_a_file_with_mistakes_elsewhere_does_not_hide_the_port(tmp_path: Path) -> None:
    """A running router keeps its settings when the file breaks: it is as well as before."""
    config = tmp_path / "warmroute.toml"
    config.write_text("port = 81\ndrain_s = -1\n")
    assert own_url(str(config), {}) == "http://127.0.0.1:81/readyz"
    config.write_text("port = \n")
    with pytest.raises(UnwellError, match="not valid TOML"):
        own_url(str(config), {})
