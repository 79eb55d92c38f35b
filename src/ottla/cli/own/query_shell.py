"""Shell of `ottla query`: statements that end with a semicolon, with history and completion."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.cluster_access import CommandFailed
from ottla.cli.own.query_results import query_errors, run
from ottla.client.errors import KafkaError
from ottla.environment.private_files import create, make_directory

if TYPE_CHECKING:
    from ottla.query.session import Session

_HELP: Final = """\
A statement ends with a semicolon. Tab completes topics and columns; DESCRIBE "topic"; shows the types of a topic.
.topics  lists the topics        .quit  ends the shell, as Ctrl-D does        Ctrl-C  ends a running statement"""
_WORDS: Final = frozenset(
    "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT USING ON AND OR NOT NULL IS IN BETWEEN LIKE AS WITH "  # noqa: SIM905
    "DISTINCT CASE WHEN THEN ELSE END INTERVAL DESCRIBE SUMMARIZE count sum avg min max".split()
)
_HISTORY_LINES: Final = 1000


def history_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Path of the history: below $XDG_STATE_HOME, by default ~/.local/state."""
    home = environment.get("XDG_STATE_HOME")
    return (Path(home) if home else Path("~/.local/state").expanduser()) / "ottla" / "query_history"


class Shell:
    """Reads statements from the terminal and runs them.

    form  form of the results
    """

    def __init__(self, session: "Session", form: str) -> None:
        self._session = session
        self._form = form
        self._topics: list[str] = []
        self._matches: list[str] = []

    def run(self) -> None:
        """Run statements until the end of the input."""
        click.echo("SQL over topics; .help for help", err=True)
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # temporary files are removed
        signal.signal(signal.SIGINT, self._interrupt)
        with _line_editing(self.complete):
            lines: list[str] = []
            while True:
                try:
                    line = input("ottla> " if not lines else "  ...> ")
                except EOFError:
                    click.echo()
                    return
                except KeyboardInterrupt:
                    click.echo()
                    lines = []
                    continue
                if not lines and line.strip().startswith("."):
                    if not self._command(line.strip()):
                        return
                    continue
                lines.append(line)
                statement = "\n".join(lines).strip()
                if not statement or statement.endswith(";"):
                    lines = []
                    self._execute(statement.strip("; \n"))

    def _interrupt(self, number: int, frame: object) -> None:
        """End the running statement; DuckDB alone notices a KeyboardInterrupt late."""
        del number, frame
        self._session.connection.interrupt()
        raise KeyboardInterrupt

    def _execute(self, statement: str) -> None:
        """Run a statement; its error is a line."""
        if not statement:
            return
        try:
            with query_errors():
                run(self._session, statement, self._form)
        except (CommandFailed, KafkaError) as error:
            click.echo(f"ottla: {error}", err=True)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
        sys.stdout.flush()

    def _command(self, command: str) -> bool:
        """Run a command of the shell. Return False at its end."""
        if command in (".quit", ".exit"):
            return False
        if command == ".topics":
            try:
                self._topics = self._session.topic_names()
            except KafkaError as error:
                click.echo(f"ottla: {error}", err=True)
            for name in self._topics:
                click.echo(name)
        else:
            click.echo(_HELP)
        return True

    def complete(self, text: str, state: int) -> str | None:
        """Return a completion of the word that is being typed, None after the last one (as readline asks for them)."""
        if state == 0:
            self._matches = self.matches(text)
        return self._matches[state] if state < len(self._matches) else None

    def matches(self, text: str) -> list[str]:
        """Return the topics, columns and words of SQL that begin with a text; topics that need quotes have them."""
        from ottla.query.scan import SCHEMA
        from ottla.query.session import quoted

        if not self._topics:
            with contextlib.suppress(KafkaError):
                self._topics = self._session.topic_names()
        names = [name if re.fullmatch(r"[A-Za-z_]\w*", name) else quoted(name) for name in self._topics]
        names += ['"offset"' if column == "offset" else column for column in SCHEMA.names]
        start = text.strip('"').lower()
        matches = [name for name in names if name.strip('"').lower().startswith(start)]
        if not text.startswith('"'):
            matches += [word for word in sorted(_WORDS) if text and word.lower().startswith(start)]
        return matches


@contextlib.contextmanager
def _line_editing(completer: Callable[[str, int], str | None]) -> Iterator[None]:
    """Set readline up, where Python has it, and keep the history in a file that only its user can read."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = history_path()
    with contextlib.suppress(OSError):
        make_directory(path.parent)
        create(path)
        readline.read_history_file(path)
    readline.set_completer(completer)
    readline.set_completer_delims(" \t\n,;()=<>+*/")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        readline.set_history_length(_HISTORY_LINES)
        with contextlib.suppress(OSError):
            readline.write_history_file(path)
