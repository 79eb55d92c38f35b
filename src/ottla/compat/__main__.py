"""`python -m ottla.compat PROGRAM ARGS`: runs a program of confluent-kafka with Ottla's client.

`python -m ottla.compat --check DIR` lists what the programs under a directory use and is missing.
"""

import runpy
import sys
from pathlib import Path

from ottla.compat.installation import install
from ottla.compat.usage import check, programs

_USAGE = "usage: python -m ottla.compat PROGRAM [ARGUMENT ...]\n       python -m ottla.compat --check DIR\n"


def main(arguments: list[str]) -> int:
    """Run a program, given by its path and arguments, or check programs.

    Returns 2 for wrong usage, 1 if there is no such file or directory, or if a checked program uses a name that is missing.
    """
    checks = arguments[:1] == ["--check"]
    rest = arguments[1:] if checks else arguments
    if not rest or rest[0].startswith("-") or (checks and len(rest) > 1):
        sys.stderr.write(_USAGE)
        return 2
    path = Path(rest[0])
    if not path.exists():
        sys.stderr.write(f"{path}: no such file{' or directory' if checks else ''}\n")
        return 1
    if checks:
        return _check(path)
    install()
    sys.argv = arguments
    sys.path[0] = str(path.resolve().parent)  # as `python PROGRAM` does
    runpy.run_path(str(path), run_name="__main__")
    return 0


def _check(place: Path) -> int:
    """Print the names that are missing; return 1 if there are any."""
    lines = list(check(place))
    count = len(programs(place))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if not lines:
        sys.stdout.write(f"{count} {'file' if count == 1 else 'files'}: all names are there\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
