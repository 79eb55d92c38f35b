"""The page docs/clients.md: what every client did, and which API versions they used while they did it."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api
from ottla.protocol.api import APIS

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"
_HEAD = """# Clients

Clients from 2013 to today, from Kafka 0.8.0 to 4.4.0, do the same steps against Ottla, behind a proxy that records
which API versions they use. The last table says which versions that covers, and which it does not. This page is made by
`make interop`, which fetches the clients with Maven, pip, Go, npm and Cargo.

Every client, as far as it supports the step,

- **admin**: creates a topic with three partitions, looks at it and deletes it;
- **produces** 100 records with keys, arbitrary bytes and null values (empty ones where the client is older than null
  values), once for each compression named;
- **fetch**: reads them all and compares them byte for byte;
- **offsets**: asks for the earliest and the latest;
- **commit**: commits an offset without being a member of a group, and reads it back;
- **group**: joins one, reads everything, commits and leaves; a second member resumes there and gets only what is new.

**Read back**: the newest confluent-kafka reads what the client wrote. **Stored**: each batch of 128 bytes or more in
the broker's log is compressed as the client was configured to; this detects a client that silently sends something
else.

`make interop` also runs programs that are built on clients: Kafka Streams applications, a Kafka Connect worker,
MirrorMaker 2 with exactly-once copies between two brokers, and a Flink job with an exactly-once sink. The last three are
killed or restarted meanwhile, and what they have written must be complete and without duplicates.

✓ is passed, ✗ failed, – is a step that the client does not support, with the reason below.

## Results

"""
_STEPS = ["admin", "fetch", "offsets", "commit", "group"]
_SHOWN = [
    ("Produce", api.PRODUCE),
    ("Fetch", api.FETCH),
    ("ListOffsets", api.LIST_OFFSETS),
    ("Metadata", api.METADATA),
    ("OffsetCommit", api.OFFSET_COMMIT),
    ("JoinGroup", api.JOIN_GROUP),
]
_MARKS = {"pass": "✓", "fail": "✗", "skip": "–"}


@dataclass(frozen=True)
class Row:
    """One client: results and reasons by step, and the API versions that it used, by API key."""

    client: str
    results: dict[str, str]
    reasons: dict[str, str]
    used: dict[int, set[int]]

    def mark(self, step: str) -> str:
        """`group` is both of its steps."""
        if step == "group" and "fail" in (self.results.get("group"), self.results.get("resume")):
            return _MARKS["fail"]
        return _MARKS[self.results.get(step, "skip")]

    def produced(self) -> str:
        """The compressions that it produced with; one that failed is crossed out."""
        codecs = {
            step.partition(" ")[2]: result for step, result in self.results.items() if step.startswith("produce ")
        }
        return " ".join(codec if result == "pass" else f"~~{codec}~~" for codec, result in codecs.items()) or "–"

    def all_well(self) -> str:
        if "all" in self.results:
            return "skipped"
        return _MARKS["fail" if "fail" in self.results.values() else "pass"]


def numbers(versions: set[int]) -> str:
    """{0, 1, 2, 5} is "0-2, 5"."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][-1] == version - 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _results(rows: list[Row]) -> str:
    header = ["client", "produces", *_STEPS, "read back", "stored", "result"]
    return _table(
        header,
        [
            [
                row.client,
                row.produced(),
                *map(row.mark, _STEPS),
                row.mark("read back"),
                row.mark("compressed"),
                row.all_well(),
            ]
            for row in rows
        ],
    )


def _versions(rows: list[Row]) -> str:
    return _table(
        ["client", *[name for name, _ in _SHOWN]],
        [[row.client, *[numbers(row.used.get(key, set())) for _, key in _SHOWN]] for row in rows if row.used],
    )


def _coverage(rows: list[Row]) -> str:
    lines = []
    for key, served in sorted(SERVED.items()):
        used = {version for row in rows for version in row.used.get(key, ())}
        every = set(range(served.versions.first, served.versions.last + 1))
        lines.append([APIS[key].name, numbers(every), numbers(used & every), numbers(every - used)])
    return _table(["API", "served", "used by a client above", "by none of them"], lines)


def _grouped(clients: list[str]) -> list[str]:
    """Join the names that differ in the last word only: "sarama 1, Version 2" and "sarama 1, Version 3"."""
    groups: dict[str, list[str]] = {}
    for client in clients:
        name, _, version = client.rpartition(" ") if ", " in client else (client, "", "")
        groups.setdefault(name, []).append(version)
    return [f"{name} {', '.join(versions)}".strip() for name, versions in groups.items()]


def _reasons(rows: list[Row], result: str) -> list[str]:
    """One line per reason, with the clients and steps that it holds for."""
    clients_by_reason: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for step, outcome in row.results.items():
            if outcome == result:
                reason = row.reasons.get(step, "no reason told")
                clients_by_reason.setdefault(reason, {}).setdefault(row.client, []).append(
                    "everything" if step == "all" else step
                )
    lines = []
    for reason, clients in clients_by_reason.items():
        steps = list(dict.fromkeys(step for those in clients.values() for step in those))
        line = f"- {', '.join(steps)}: {reason} ({'; '.join(_grouped(list(clients)))})"
        lines.append(
            textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
        )
    return lines


def write(rows: list[Row]) -> None:
    """Write the whole page."""
    failed = _reasons(rows, "fail")
    parts = [
        _HEAD,
        _results(rows),
        *(["\n## What failed\n\n", *failed] if failed else []),
        "\n## Steps that a client does not support\n\n",
        *_reasons(rows, "skip"),
        "\n## Versions used by each client\n\n",
        "As the proxy saw them; most clients use the newest version that they and the broker support.\n\n",
        _versions(rows),
        "\n## Versions used by any client\n\n",
        "The conformance tests run through every version of every API, also those that no client above uses.\n\n",
        _coverage(rows),
    ]
    PAGE.write_text("".join(parts), encoding="utf-8")
