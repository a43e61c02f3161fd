"""How many clients a limit of open files is enough for, and what is said of it."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from router.app.process.open_files import client_connections, raise_limit, warn_if_few
from router.app.settings.model import Settings


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def allow(files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize(("files", "clients"), [(1_024, 448), (512, 192), (256, 64), (200, 50)])
def test_a_client_takes_two_files_and_the_rest_of_the_router_some(files: int, clients: int) -> None:
    allow(files)
    assert client_connections(Settings()) == clients
    assert client_connections(Settings(max_connections=clients - 1)) == clients - 1


def test_too_few_files_are_said(caplog: pytest.LogCaptureFixture) -> None:
    allow(1_024)
    warn_if_few(Settings())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        "1,024 files may be open, which is enough for 448 client connections and not for the 20,000 of"
    )


def test_nothing_is_said_where_they_suffice(caplog: pytest.LogCaptureFixture) -> None:
    allow(1_024)
    warn_if_few(Settings(max_connections=448))
    assert not caplog.records


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    allow(1_024)
    raise_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard > 1_024
