"""Serves the page's files as they are: no build step, nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
from fastapi import FastAPI
from fastapi.responses import Response
from starlette.requests import Request

PAGE = "/"
FILES = "/page/"
"""Before the path of each file that the page consists of."""

_DIRECTORY = Path(__file__).parent / "page"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        # No string becomes markup or script, whatever a client has called its model.
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked for each time, and answered with 304: after an update no file is older than another.
    "cache-control": "no-cache",
}


class _File(msgspec.Struct, frozen=True):
    content: bytes
    media_type: str
    etag: str


def is_page(path: str) -> bool:
    """Tell whether a path is the page's: open to all who reach the port, since it holds no data."""
    return path == PAGE or path.startswith(FILES)


def add_page(app: FastAPI) -> None:
    """Add the page and its files to an application."""

    async def page(request: Request) -> Response:
        return _answer(request, "index.html")

    async def file(request: Request) -> Response:
        return _answer(request, request.path_params["file"])

    app.add_route(PAGE, page, methods=["GET"], include_in_schema=False)
    app.add_route(FILES + "{file:path}", file, methods=["GET"], include_in_schema=False)


def _answer(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        return Response("there is no such file\n", 404, media_type="text/plain")
    headers = HEADERS | {"etag": file.etag}
    known = [etag.strip().removeprefix("W/") for etag in request.headers.get("if-none-match", "").split(",")]
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


@cache
def _files() -> dict[str, _File]:
    """Read all files, by their paths below the page: what is not in there can't be asked for."""
    paths = [path for path in sorted(_DIRECTORY.rglob("*")) if path.suffix in _TYPES]
    return {path.relative_to(_DIRECTORY).as_posix(): _read(path) for path in paths}


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:20]}"')
