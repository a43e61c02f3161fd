"""A terminal that is taken over for a while: an alternate screen, keys without Enter, and all as it was at the end."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import tty
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleDimensions, RenderableType

_OTHER_KEYS = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.|.)?")
"""Arrows and their like come as several signs, digits among them."""


class Screen:
    """The terminal on standard output, with the keys of standard input where that is one too."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.keys: int | None = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        """File descriptor of the keys."""
        self._was: list[Any] | None = None

    def __enter__(self) -> Screen:
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._give_back()

    @property
    def size(self) -> ConsoleDimensions:
        """Columns and lines as they are now; COLUMNS and LINES say what they were when the shell started."""
        try:
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            columns, lines = 0, 0
        return ConsoleDimensions(columns or 80, lines or 24)  # some terminals say 0

    def draw(self, drawn: RenderableType) -> None:
        """Show this, and nothing of what was shown before."""
        self._console.size = self.size
        self._console.update_screen(drawn)

    def pressed(self) -> str | None:
        """Return the letters and digits that were pressed; None when the terminal is gone."""
        if self.keys is None:
            return ""
        try:
            pressed = os.read(self.keys, 1024)
        except OSError:
            return None
        return _OTHER_KEYS.sub("", pressed.decode("utf-8", "replace")) if pressed else None

    def stop_until_continued(self) -> None:
        """Do what Ctrl-Z asks for, with the terminal given back meanwhile."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _take(self) -> None:
        if self.keys is not None:
            self._was = termios.tcgetattr(self.keys)
            tty.setcbreak(self.keys)
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def _give_back(self) -> None:
        self._console.show_cursor(True)
        self._console.set_alt_screen(False)
        if self.keys is not None and self._was is not None:
            termios.tcsetattr(self.keys, termios.TCSADRAIN, self._was)
