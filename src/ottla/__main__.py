"""Entry point of `python -m ottla`, the command `ottla`."""

from ottla.cli.entry import run

run()
