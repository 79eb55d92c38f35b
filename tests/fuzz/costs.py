"""Maximum cost of a request: the longest pass of the broker's loop and the peak of its memory, for hostile but valid requests.

    python -m tests.fuzz.costs --api Metadata,Fetch --sizes 1000,1MB --versions oldest-newest --json costs.json

prints the worst of each API, the longest pass first; rows above 50 ms are marked, and APIs that hold more memory than they may:
the exit status is 1 then.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api
from ottla.protocol.api import APIS
from tests.fuzz import hostile
from tests.fuzz.hostile import EMPTY, EXISTING, LARGEST, MEGABYTE, MOST, PIPELINED, UNKNOWN, Case
from tests.fuzz.measured import DOES_NOT_END, Cost, MeasuredBroker

LIMIT_MS: Final = 50
SIZES: Final = ("0", "1", "1000", "most", "100000", "1MB", "10MB", "max")
_BRIEF: Final = {
    UNKNOWN: frozenset({"0", "1", "1000", "most", "100000", "max"}),
    hostile.DENIED: frozenset({"1000"}),
    EXISTING: frozenset({"1000"}),
    EMPTY: frozenset({"1MB", "10MB"}),
}
"""The sizes that each kind of names has without `--thorough`: what fits most into a size are elements without names."""
MAKERS: Final = frozenset(
    {
        api.CREATE_TOPICS,
        api.METADATA,
        api.CREATE_PARTITIONS,
        api.CREATE_ACLS,
        api.ALTER_CLIENT_QUOTAS,
        api.CREATE_DELEGATION_TOKEN,
    }
)
"""APIs that may leave so much behind that the next request would be measured with it."""
_MANY: Final = 1000


class Row(NamedTuple):
    """A measured case."""

    api: str
    version: int
    field: str
    size: str
    names: str
    connections: int
    longest_ms: float
    peak_mb: float
    outcome: str
    request_mb: float = 0.0
    response_mb: float = 0.0

    @property
    def excess_mb(self) -> float:
        """Return the memory above the bound: ten times the request, 16 MB, and the response twice, while it is joined."""
        return self.peak_mb - 10 * self.request_mb - 16 - 2 * self.response_mb

    @property
    def is_above(self) -> bool:
        """Return True if the request takes longer than a pass may, or holds more than it may."""
        return self.longest_ms > LIMIT_MS or self.excess_mb > 0


def cases(key: int, version: int, sizes: Sequence[str], names: Sequence[str], *, thorough: bool) -> Iterator[Case]:
    """The cases of one version, the smallest size of each field first."""
    for kind in names:
        chosen = [size for size in SIZES if size in sizes and (thorough or size in _BRIEF[kind])]
        chosen += [size for size in sizes if size not in SIZES and kind == UNKNOWN]
        for path, declared in hostile.growing(key, version):
            is_array = hostile.is_array(declared)
            of_field = chosen
            if path in (hostile.HEADER_TAGS, hostile.BODY_TAGS) and not thorough and key != api.API_VERSIONS:
                continue  # read in the same way in all requests
            if not is_array:  # its names are not what grows
                if kind != UNKNOWN:
                    continue
                of_field = list(sizes)
            for size in of_field:
                if size == "most" and (not is_array or path[0] == "("):
                    continue
                if (size == "max") == hostile.is_number(declared) and (size != "max" or hostile.may_be_largest(path)):
                    yield _case(key, version, path, size, kind)
        if "1MB" in sizes and (thorough or kind == UNKNOWN):
            yield Case(key, version, PIPELINED, MEGABYTE, kind, fits=True)


def _case(key: int, version: int, path: str, size: str, names: str) -> Case:
    if size == "max":
        return Case(key, version, path, LARGEST, names)
    if size == "most":
        return Case(key, version, path, MOST, names)
    if size.endswith("MB"):
        return Case(key, version, path, int(size[:-2]) * MEGABYTE, names, fits=True)
    return Case(key, version, path, int(size), names)


def measure_cases(
    broker: MeasuredBroker,
    chosen: Iterable[Case],
    connections: int = 1,
    *,
    attempts: int = 1,
    limit_ms: float = LIMIT_MS,
    restarts: bool = True,
) -> Iterator[Row]:
    """Measure cases; one above the limit up to `attempts` times, of which the least counts. Larger sizes of what does not end
    are left out.

    restarts  replace the broker after a request that may have made much
    """
    endless: set[tuple[int, int, str, str]] = set()
    for case in chosen:
        name = (case.key, case.version, case.field, case.names)
        if name in endless:
            continue
        cost: Cost | None = None
        for _ in range(attempts):
            # Built for each attempt: a restart gives the topic another id.
            attempt = broker.measure(*hostile.request(case, broker.topic_id), connections)
            if cost is None or attempt.longest_ms < cost.longest_ms:
                cost = attempt
            if cost.outcome == DOES_NOT_END or cost.longest_ms <= limit_ms:
                break
        assert cost is not None
        if cost.outcome == DOES_NOT_END:
            endless.add(name)
        if (
            restarts
            and case.key in MAKERS
            and (case.size >= _MANY or case.size == MOST)
            and cost.outcome != DOES_NOT_END
        ):
            broker.restart()
        yield Row(
            case.api, case.version, case.field, case.size_text, case.names, connections, *dataclasses.astuple(cost)
        )


def warm_up(broker: MeasuredBroker, key: int, version: int) -> None:
    """Let the broker import the handler, make the decoder and open what a coordinator needs, once for all requests."""
    for names in (hostile.DENIED, UNKNOWN):
        broker.measure(*hostile.request(Case(key, version, hostile.CLIENT_ID, 1, names), broker.topic_id))


def worst(rows: Sequence[Row]) -> list[Row]:
    """The worst row of each API, with the highest peak of all of its rows."""
    by_api: dict[str, Row] = {}
    peaks: dict[str, float] = {}
    for row in rows:
        peaks[row.api] = max(peaks.get(row.api, 0), row.peak_mb)
        if row.api not in by_api or row.longest_ms > by_api[row.api].longest_ms:
            by_api[row.api] = row
    return sorted((row._replace(peak_mb=peaks[row.api]) for row in by_api.values()), key=lambda row: -row.longest_ms)


def table(rows: Sequence[Row]) -> str:
    """The worst of each API as text; `!` marks what takes longer than a pass may, and what holds more than a request may."""
    lines = [f"{'API':<38} {'v':>2} {'ms':>9} {'peak MB':>8}  {'outcome':<12} request"]
    holding = {row.api for row in rows if row.excess_mb > 0}
    for row in worst(rows):
        mark = "!" if row.longest_ms > LIMIT_MS else " "
        heavy = "!" if row.api in holding else " "
        what = f"{row.field} {row.size} {row.names}" + (f" x{row.connections}" if row.connections > 1 else "")
        lines.append(
            f"{row.api:<38} {row.version:>2} {row.longest_ms:>8.1f}{mark} {row.peak_mb:>8.1f}{heavy} {row.outcome:<12} {what}"
        )
    return "\n".join(lines)


def comparison(before: Sequence[Row], after: Sequence[Row]) -> str:
    """The worst of each API before and after a change, as a table in Markdown; `*` marks what still takes too long."""
    earlier = {row.api: row for row in worst(before)}
    lines = [
        "| API | ms before | ms after | peak MB before | peak MB after | longest pass after: version, field, size, names |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in worst(after):
        old = earlier.get(row.api)
        mark = " *" if row.longest_ms > LIMIT_MS else ""
        columns = (
            row.api,
            _duration(old) if old else "not measured",
            _duration(row) + mark,
            f"{old.peak_mb:.1f}" if old else "not measured",
            f"{row.peak_mb:.1f}",
            f"{row.version}, {row.field}, {row.size}, {row.names}",
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def _duration(row: Row) -> str:
    return f"above {row.longest_ms:.0f}" if row.outcome == DOES_NOT_END else f"{row.longest_ms:.1f}"


def _rows(files: str) -> list[Row]:
    """The rows of JSON files, whose names are separated by commas."""
    return [Row(**row) for name in files.split(",") for row in json.loads(Path(name).read_text(encoding="utf-8"))]


def _versions(key: int, which: str) -> list[int]:
    versions = hostile.versions_of(key, every=which == "all")
    return {"newest": versions[:1], "oldest": versions[-1:]}.get(which, versions)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--api", help="names, separated by commas; all without")
    parser.add_argument(
        "--sizes", default=",".join(SIZES), help="elements, bytes with MB, `max` for the largest numbers"
    )
    parser.add_argument("--versions", choices=("newest", "oldest", "oldest-newest", "all"), default="oldest-newest")
    parser.add_argument("--names", default=",".join(hostile.NAMES))
    parser.add_argument("--thorough", action="store_true", help="every size with every kind of names")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="CPU that a request may take")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row there")
    parser.add_argument("--compare", nargs=2, metavar="FILES", help="print two earlier results side by side, and end")
    options = parser.parse_args(arguments)
    if options.compare:
        sys.stdout.write(comparison(*map(_rows, options.compare)) + "\n")
        return 0
    api_names = options.api.split(",") if options.api else [APIS[key].name for key in SERVED]
    keys = [key for key in SERVED if APIS[key].name in api_names]
    rows: list[Row] = []
    with MeasuredBroker(seconds=options.seconds) as broker:
        for key in keys:
            begun = time.monotonic()
            for version in _versions(key, options.versions):
                broker.restart()
                warm_up(broker, key, version)
                chosen = cases(
                    key, version, options.sizes.split(","), options.names.split(","), thorough=options.thorough
                )
                rows += measure_cases(broker, chosen, options.connections)
            if options.json:
                options.json.write_text(json.dumps([row._asdict() for row in rows], indent=0), encoding="utf-8")
            sys.stderr.write(f"{APIS[key].name}: {time.monotonic() - begun:.0f} s, {len(rows)} rows\n")
    sys.stdout.write(table(rows) + "\n")
    return int(any(row.is_above for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
