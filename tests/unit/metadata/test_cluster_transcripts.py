"""Registration, fencing and elections of a cluster as transcripts.

Inputs are described in `cluster_case.py`; the lines with a time are outputs. To write them again after a change of behaviour
run with OTTLA_TEST_REWRITE=1, and read the difference before it is committed.
"""

from pathlib import Path

import pytest

from .cluster_case import ClusterCase
from .transcript_files import assert_current, transcripts

TRANSCRIPTS = transcripts("cluster")


def play(text: str) -> str:
    """Return the transcript with the outputs of the current code."""
    lines: list[str] = []
    case: ClusterCase | None = None
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line.startswith("brokers "):
            case = ClusterCase(line)
        elif line and not line.startswith("#") and case is not None:
            case.play(line)
            lines += case.lines
            case.lines.clear()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    assert_current(path, play(path.read_text()))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6
