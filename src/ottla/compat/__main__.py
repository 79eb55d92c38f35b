"""`python -m ottla.compat PROGRAM ARGS`: runs a program of confluent-kafka with Ottla's client."""

import runpy
import sys
from pathlib import Path

from ottla.compat.installation import install


def main(arguments: list[str]) -> int:
    """Run a program, given by its path and arguments; return 2 if none is given, 1 if there is no such file."""
    if not arguments or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m ottla.compat PROGRAM [ARGUMENT ...]\n")
        return 2
    path = Path(arguments[0])
    if not path.exists():
        sys.stderr.write(f"{path}: no such file\n")
        return 1
    install()
    sys.argv = arguments
    sys.path[0] = str(path.resolve().parent)  # as `python PROGRAM` does
    runpy.run_path(str(path), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
