"""What the site needs beside the pages, which are written for GitHub: hooks of MkDocs, named in mkdocs.yml.

- Words of ours behind a fence's language: a file's name becomes a title, and what a block needs is said below it.
- Pages and files outside docs/ that pages link to are taken into the site, at project/ and the same path as here.
- State diagrams are drawn while the site is built.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from docs.site.states import drawing  # noqa: E402

TAKEN_IN = "project/"
ALWAYS = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Taken in though no page may link to them."""
LISTED = TAKEN_IN + "files.md"

NEEDS = {
    "demo": "Takes a minute, after the installation.",
    "checkout": "In a checkout.",
    "gpu": "Needs a GPU and vLLM.",
    "cluster": "Needs a Kubernetes cluster.",
    "docker": "Needs Docker.",
    "internet": "Needs the internet.",
}
"""What readers are told of a mark. `run`, `fleet` and `host` need what the page has started anyway."""
MARKS = {*NEEDS, "run", "fleet", "host"}

_FENCED = re.compile(r"^(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence) *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`+[^`]*`+")
_LINK = re.compile(r"(?P<before>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)(?P<after>\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors are those that GitHub makes."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what pages link to outside docs/, and what those pages link to in turn."""
    sources = [Path(file.abs_src_path or "") for file in files.documentation_pages()]
    found = {ROOT / name for name in ALWAYS}
    seen: set[Path] = set()
    while found or sources:
        for path in found - seen:
            sources += [file for file in _take_in(path, files, config) if file.suffix == ".md"]
        seen |= found
        found = _linked(sources.pop()) if sources else set()
    files.append(File.generated(config, LISTED, content=_list_of(files)))
    return files


def _take_in(path: Path, files: Files, config: MkDocsConfig) -> list[Path]:
    """Put a file, or all of a folder, into the site; return those that were not there yet."""
    every = sorted(path.rglob("*")) if path.is_dir() else [path]
    new = [file for file in every if file.is_file() and "__pycache__" not in file.parts]
    new = [file for file in new if files.get_file_from_path(_taken(file)) is None]
    for file in new:
        files.append(File.generated(config, _taken(file), abs_src_path=str(file)))
    return new


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn what GitHub shows into what the site can."""
    uri = page.file.src_uri
    if uri == LISTED:
        return markdown
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # it is a list of all pages itself
    source = Path(page.file.abs_src_path or "")
    return _outside_fences(markdown, lambda text: _with_links(text, source, uri), _fence)


def _fence(found: re.Match[str]) -> str:
    language, _, word = found["info"].strip().partition(" ")
    if language == "mermaid":
        return drawing(found["text"])
    title = f' title="{word}"' if word and word not in MARKS else ""
    note = f'\n\n<p class="needs">{NEEDS[word]}</p>' if word in NEEDS else ""
    return f"{found['fence']}{language}{title}\n{found['text']}{found['fence']}{note}"


def _with_links(text: str, source: Path, uri: str) -> str:
    def moved(found: re.Match[str]) -> str:
        path = _local(source, found["target"])
        if path is None or not _is_outside(path) and not uri.startswith(TAKEN_IN):
            return found[0]
        _, hash_, anchor = found["target"].partition("#")
        target = f"{LISTED}#{_anchor(path)}" if path.is_dir() else _address(path) + hash_ + anchor
        return found["before"] + posixpath.relpath(target, posixpath.dirname(uri)) + found["after"]

    return _LINK.sub(moved, text)


def _linked(source: Path) -> set[Path]:
    """Files and folders outside docs/ that a page links to."""
    prose = _CODE.sub("", _outside_fences(source.read_text(), str, lambda fence: ""))
    targets = [found["target"] for found in _LINK.finditer(prose)]
    return {path for target in targets if (path := _local(source, target)) and _is_outside(path)}


def _local(source: Path, target: str) -> Path | None:
    """The file that a link names; None for an address, an anchor alone, and what is not there."""
    name = target.partition("#")[0]
    path = (source.parent / name).resolve()
    return path if name and ":" not in name and path.exists() and path.is_relative_to(ROOT) else None


def _is_outside(path: Path) -> bool:
    return not path.is_relative_to(ROOT / "docs")


def _taken(path: Path) -> str:
    """Where in the site a file from outside docs/ is: browsers know its ending, MkDocs sees no dot before it."""
    name = path.relative_to(ROOT).with_name(path.name.removeprefix(".")).as_posix()
    return TAKEN_IN + (name if path.suffix else f"{name}.txt")


def _address(path: Path) -> str:
    if path == ROOT / "README.md":
        return "index.md"
    return _taken(path) if _is_outside(path) else path.relative_to(ROOT / "docs").as_posix()


def _anchor(folder: Path) -> str:
    return folder.relative_to(ROOT).as_posix().replace("/", "-")


def _list_of(files: Files) -> str:
    """A page with all files that were taken in, by folder."""
    folders: dict[Path, list[Path]] = {}
    for file in files:
        path = Path(file.abs_src_path or "")
        if file.src_uri.startswith(TAKEN_IN) and path.suffix != ".md":
            for folder in [folder for folder in path.parents if folder.is_relative_to(ROOT) and folder != ROOT]:
                folders.setdefault(folder, [])
            folders.setdefault(path.parent, []).append(path)
    lines = ["# Files", "", "Files of the project that pages speak of, as they are in the repository.", ""]
    for folder in sorted(folders):
        name = folder.relative_to(ROOT).as_posix()
        if name != ".":
            lines += [f'## `{name}` {{ id="{_anchor(folder)}" }}', ""]
        lines += [f"- [`{path.name}`]({_taken(path).removeprefix(TAKEN_IN)})" for path in sorted(folders[folder])]
        lines.append("")
    return "\n".join(lines)


def _outside_fences(markdown: str, change: Callable[[str], str], fence: Callable[[re.Match[str]], str]) -> str:
    """Change what is no code, and fences by a function of their own."""
    done, at = [], 0
    for found in _FENCED.finditer(markdown):
        done += [_outside_code(markdown[at : found.start()], change), fence(found)]
        at = found.end()
    return "".join([*done, _outside_code(markdown[at:], change)])


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change a text while its code is put aside, which may look like a link and may be in one."""
    kept: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], change(_CODE.sub(put_aside, text)))
