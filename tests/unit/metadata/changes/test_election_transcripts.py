"""Elections as transcripts: what happens to one partition, and its state after each step.

Inputs are described in `election_case.py`; the indented lines are outputs. To write them again after a change of behaviour run
with OTTLA_TEST_REWRITE=1, and read the difference before it is committed.
"""

from pathlib import Path

import pytest
from tests.unit.metadata.election_case import ElectionCase
from tests.unit.metadata.transcript_files import assert_current, transcripts

TRANSCRIPTS = transcripts("elections")


def play(text: str) -> str:
    """Return the transcript with the outputs of the current code."""
    lines: list[str] = []
    case: ElectionCase | None = None
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        if line.startswith("replicas "):
            case = ElectionCase.parsed(line)
        elif line and not line.startswith("#") and case is not None:
            before = case.partition
            case.play(line)
            lines.append(f"    {case.described() if case.partition != before else 'no change'}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    assert_current(path, play(path.read_text()))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 9
