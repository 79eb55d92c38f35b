"""Comparison of transcripts with the behaviour of the current code."""

import os
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "transcripts"


def transcripts(name: str) -> list[Path]:
    """Return the transcripts in a directory."""
    return sorted((_DIRECTORY / name).glob("*.txt"))


def assert_current(path: Path, played: str) -> None:
    """Assert that a transcript is `played`; with OTTLA_TEST_REWRITE=1 it is written instead."""
    if os.environ.get("OTTLA_TEST_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()
