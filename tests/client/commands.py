"""Commands run as their users run them, in this process."""

import json
import re
from typing import Any

from click.testing import CliRunner, Result

from ottla.cli.main import main


class Commands:
    """`ottla COMMAND --bootstrap-server ... WORDS`; a command may be two words ("cluster cluster-id")."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def run(self, command: str, *words: str) -> Result:
        where = ["--bootstrap-server", self.bootstrap_servers]
        result = CliRunner().invoke(main, [*command.split(), *where, *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def output(self, command: str, *words: str) -> str:
        """Run a command that succeeds, and return its output with single blanks."""
        result = self.run(command, *words)
        assert result.exit_code == 0, result.output
        return re.sub("[ \t]+", " ", result.stdout)

    def json(self, command: str, *words: str) -> Any:
        """The same with --json, read."""
        return json.loads(self.output(command, *words, "--json"))

    def refused(self, command: str, *words: str) -> str:
        """The one line that says why a command failed."""
        result = self.run(command, *words)
        assert result.exit_code == 1, result.output
        lines = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
        assert len(lines) == 1, result.stderr
        return lines[0].removeprefix("ottla: ")

    def misused(self, command: str, *words: str) -> str:
        """Run a command with wrong usage, and return its error output."""
        result = self.run(command, *words)
        assert result.exit_code == 2, result.output
        return result.stderr
