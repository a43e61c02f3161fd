"""`warmroute top`: asks routers again and again, and draws what they say."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from router.app.terminal.admin import DEFAULT_URL, Admin, AdminError, AwayError
from router.app.terminal.figures import WINDOWS
from router.app.terminal.frame import frame
from router.app.terminal.screen import Screen
from router.app.terminal.view import View, Watched

DECISIONS = 100
"""Asked for each time: more than a screen has lines."""
_QUIT = ("q", "Q", "\x04")
_WINDOW_KEYS = {str(key): window for key, window in enumerate(WINDOWS, 1)}
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class TopOptions:
    """What the user asked for."""

    urls: Sequence[str]
    window: str
    interval_s: float
    once: bool
    as_json: bool


def run_top(options: TopOptions) -> int:
    """Show the routers until the user leaves, or once; return the exit code.

    ConfigError where no router can be asked at the start. Later a router that is away is shown as such.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 has no bars
    return asyncio.run(_run(options))


async def _run(options: TopOptions) -> int:
    async with contextlib.AsyncExitStack() as stack:
        admins = [Admin(url) for url in dict.fromkeys(options.urls or [DEFAULT_URL])]
        for admin in admins:
            stack.push_async_callback(admin.close)
        if options.as_json:
            return await _print_json(admins)
        top = Top(admins, options)
        await top.first()
        console = Console()
        if options.once or not sys.stdout.isatty() or console.is_dumb_terminal:
            console.print(frame(top.view, console.width))
            return 0
        with Screen(console) as screen:
            return await top.run(screen)


async def _print_json(admins: Sequence[Admin]) -> int:
    """Print the overview, or one for each URL where there are several; null for a router that is away."""
    asked = await asyncio.gather(*(admin.overview_json() for admin in admins), return_exceptions=True)
    _raise_if_useless(asked)
    found = [None if isinstance(overview, BaseException) else overview for overview in asked]
    labelled = {admin.label: overview for admin, overview in zip(admins, found, strict=True)}
    Console().out(json.dumps(found[0] if len(found) == 1 else labelled, indent=2), highlight=False)
    return 0


def _raise_if_useless(asked: Sequence[object]) -> None:
    """Raise what stands in the way of showing anything: a refusal, or nobody there."""
    for outcome in asked:
        if isinstance(outcome, BaseException) and not isinstance(outcome, AwayError):
            raise outcome
    if all(isinstance(outcome, AwayError) for outcome in asked):
        raise asked[0]  # type: ignore[misc]  # an exception, as the line above says


class Top:
    """The routers that are watched, and the one view of them."""

    def __init__(self, admins: Sequence[Admin], options: TopOptions) -> None:
        self.view = View([Watched(admin.label) for admin in admins], options.window)
        self._admins = admins
        self._interval_s = options.interval_s
        self._answered_s = [time.time()] * len(admins)
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def first(self) -> None:
        """Ask every router. RefusedError where one says no, AwayError where none answers."""
        _raise_if_useless(await asyncio.gather(*(self._ask(number) for number in range(len(self._admins)))))
        self.view.now_s = time.time()

    async def _ask(self, number: int) -> AdminError | None:
        """Learn what a router says now; return what was wrong, if anything was."""
        admin, router = self._admins[number], self.view.routers[number]
        try:
            overview, decisions = await admin.overview(), await admin.decisions(DECISIONS)
        except AdminError as error:
            router.lost_since_s, router.why = self._answered_s[number], error.why
            return error
        router.overview, router.decisions, router.lost_since_s = overview, decisions, None
        self._answered_s[number] = time.time()
        return None

    async def run(self, screen: Screen) -> int:
        """Draw until the user leaves; return the exit code: 0 after q, 128 and the signal's number after one."""
        loop = asyncio.get_running_loop()
        for number in _ENDS:
            loop.add_signal_handler(number, self._leave, 128 + number)
        loop.add_signal_handler(signal.SIGWINCH, self._draw, screen)
        loop.add_signal_handler(signal.SIGTSTP, self._stop, screen)
        if screen.keys is not None:
            loop.add_reader(screen.keys, self._press, screen)
        self._draw(screen)
        watching = [asyncio.ensure_future(self._watch(number, screen)) for number in range(len(self._admins))]
        try:
            done, _ = await asyncio.wait([self._end, *watching], return_when=asyncio.FIRST_COMPLETED)
            return await next(iter(done))
        finally:
            for task in watching:
                task.cancel()
            if screen.keys is not None:
                loop.remove_reader(screen.keys)

    async def _watch(self, number: int, screen: Screen) -> int:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._ask(number)
            self._draw(screen)

    def _press(self, screen: Screen) -> None:
        keys = screen.pressed()
        if keys is None:
            self._leave(0)
            return
        for key in keys:
            if key in _QUIT:
                self._leave(0)
            self.view.window = _WINDOW_KEYS.get(key, self.view.window)
        self._draw(screen)

    def _leave(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    def _stop(self, screen: Screen) -> None:
        screen.stop_until_continued()
        self._draw(screen)

    def _draw(self, screen: Screen) -> None:
        self.view.now_s = time.time()
        columns, lines = screen.size
        screen.draw(frame(self.view, columns, lines))
