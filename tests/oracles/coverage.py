"""The versions of each message that each oracle checks: coverage.json, which docs/protocol.md is made from.

`python -m tests.oracles.coverage` asks all oracles and writes it; test_oracles.py holds it against every oracle that is there.
"""

import json
from pathlib import Path
from typing import Final

from tests.oracles.dice import declared_messages
from tests.oracles.oracles import ORACLES, Oracle, Peers

FILE: Final = Path(__file__).parent / "coverage.json"

# What an oracle has and cannot be asked about, and why.
EXCLUDED: Final[dict[tuple[str, str], str]] = {
    ("Kafka 3.9.1", "ReadShareGroupStateSummaryResponse"): "version 0 got its leader epoch after 4.0",
    ("kio 0.5.0", "ReadShareGroupStateSummaryResponse"): "version 0 got its leader epoch after 4.0",
    ("Kafka 3.9.1", "ShareGroupMetadataValue"): "version 0 had no metadata hash before 4.1",
    ("Kafka 3.9.1", "ShareGroupPartitionMetadataValue"): "version 0 had other fields before 4.0",
}


# An oracle that is asked about these messages alone: others have all the rest.
ONLY: Final = {"Kafka 4.0.0": {"ShareGroupPartitionMetadataKey", "ShareGroupPartitionMetadataValue"}}


def recorded() -> dict[str, dict[str, tuple[int, int]]]:
    """Oracle to message to first and last version checked, both inclusive."""
    held = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: {message: (span[0], span[1]) for message, span in spans.items()} for name, spans in held.items()}


def asked(oracle: Oracle) -> dict[str, tuple[int, int]]:
    """Return the versions of declared messages that `oracle` supports."""
    spans = {}
    for message, cls in sorted(declared_messages().items()):
        if message not in ONLY.get(oracle.name, {message}):
            continue
        span = oracle.versions(message)
        if span is None or (oracle.name, message) in EXCLUDED:
            continue
        first, last = max(span[0], cls.VERSIONS.first), min(span[1], cls.VERSIONS.last)
        if first <= last:
            spans[message] = (first, last)
    return spans


def write() -> None:
    """Ask all oracles; all of them must be there."""
    peers = Peers()
    lines = []
    for name in ORACLES:
        spans = ",\n".join(f'  "{message}": [{a}, {b}]' for message, (a, b) in asked(peers.oracle(name)).items())
        lines.append(f'"{name}": {{\n{spans}\n}}')
    peers.close()
    FILE.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
