"""Entry point of `python -m ottla`, the command `ottla`."""

from ottla.cli.main import main

main()
