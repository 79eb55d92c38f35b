"""Record the transcripts of all scenarios, or of some: python -m tests.conformance.streams.record HOST:PORT [NAME...].

The broker is an Apache Kafka 4.4.0: what it does is what the tests expect.
"""

import sys
from pathlib import Path

from tests.conformance.conftest import TopicFactory, Wire

from .scenarios import SCENARIOS

TRANSCRIPTS = Path(__file__).parent / "transcripts"


def main(address: str, names: list[str], *, into: Path = TRANSCRIPTS) -> None:
    host, _, port = address.partition(":")
    for name in names or SCENARIOS:
        wire = Wire((host, int(port)), is_kafka="--ottla" not in sys.argv)
        try:
            play = SCENARIOS[name](wire, TopicFactory(wire))
        except AssertionError as cause:
            sys.stdout.write(f"{name}: {cause!r}\n")
            continue
        (into / f"{name}.txt").write_text("\n".join(play.lines) + "\n")
        sys.stdout.write(f"{name}: {len(play.lines)} lines\n")


if __name__ == "__main__":
    main(sys.argv[1], [word for word in sys.argv[2:] if not word.startswith("-")])
