"""Compare commands with Kafka's tools: `python -m tests.interop.command_walk --count 1000 --seed 1 --commands topics`."""

import argparse
import sys
import tempfile
from pathlib import Path

from .command_lines import COMMANDS
from .walk import run


def main() -> int:
    """Return 1 if there are differences."""
    parser = argparse.ArgumentParser(description="Compare Ottla's commands with Kafka's tools on random command lines.")
    parser.add_argument("--count", type=int, default=1000, help="number of command lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(COMMANDS), help="some of them, separated by commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "file"
        equal, differed = run(options.seed, options.count, file, print, options.commands.split(","))
    sys.stdout.write(f"{equal + differed} command lines, {differed} differences\n")
    return int(differed > 0)


if __name__ == "__main__":
    sys.exit(main())
