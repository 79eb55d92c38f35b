"""Screen of `ottla top` on a terminal, drawn with rich; q quits."""

import os
import select
import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.cli.own.cluster_figures import Figures
from ottla.cli.own.top_tables import NUMBERS, cell_texts, tables
from ottla.cli.stopping import STEP_S, Stop

try:
    import termios
    import tty
except ImportError:  # not on Windows, where only Ctrl-C quits
    termios = None  # type: ignore[assignment]

_FRAME_LINES = 11
"""Number of lines for titles, blank lines and the header."""


class Screen:
    """Full-screen display for the duration of a `with` block."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if termios is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def first(self, shown: Figures) -> None:
        """Show the first sample, without rates."""
        self.show(shown)

    def show(self, shown: Figures) -> None:
        """Draw the brokers, and as many topics and groups as fit."""
        line = f"{time.strftime('%H:%M:%S')}  cluster {shown.cluster_id}  {len(shown.brokers)} brokers  q quits"
        parts: list[Any] = [Text(line, style="bold")]
        room = self._console.size.height - _FRAME_LINES - len(shown.brokers) - len(shown.trouble)
        for number, (titles, rows) in enumerate(tables(shown)):
            parts += [Text(), draw_table(titles, rows if number == 0 else rows[: max(room // 2, 1)])]
        parts += [Text(line, style="red") for line in shown.trouble]
        self._live.update(Group(*parts), refresh=True)

    def show_error(self, why: str) -> None:
        """Show an error instead of the figures."""
        self._live.update(Text(why, style="red"), refresh=True)

    def wait(self, seconds: float) -> None:
        """Wait until the next update is due, or q is pressed."""
        if self._before is None:
            self._stop.sleep(seconds)
            return
        end = time.monotonic() + seconds
        while not self._stop.requested and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([sys.stdin], [], [], min(left, STEP_S))
            if ready:
                keys = os.read(sys.stdin.fileno(), 64)
                self._stop.requested = not keys or b"q" in keys.lower()


def draw_table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Table:
    """Return a table without borders; sizes have units."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, justify="right" if title in NUMBERS else "left", no_wrap=True)
    for row in rows:
        table.add_row(*cell_texts(titles, row))
    return table
