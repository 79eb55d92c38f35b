"""Report of the flows of a run, from Spark's events, metrics of queries and row counts of tables. Does not import Spark.

Spark reports events as sentences ("Flow spark_catalog.shop.silver is RUNNING."). A failing flow is first reported as COMPLETED
and then retried, up to three times: the last state counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_EVENT: Final = re.compile(r"Flow '?(?P<name>\S+?)'? (?:is |has )?(?P<state>[A-Z]{4,})\b")
_UNRESOLVED: Final = re.compile(r"Failed to resolve flow: '(?P<name>\S+?)'")
_RUN: Final = re.compile(r"Run (?:is|has) (?P<state>[A-Z]+)\b")
_STREAM: Final = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
FAILED: Final = "FAILED"
_OVER: Final = ("COMPLETED", FAILED)


class FlowReport(NamedTuple):
    """Result of one flow in one run.

    state     state in Spark: QUEUED, RUNNING, COMPLETED, FAILED, SKIPPED (an upstream flow failed), ...; CHECKED in a dry run
    rows_in   rows read; None for a materialized view, which is recomputed
    rows_out  rows written; None if they were not counted
    lag       offsets not read yet; None if no source reports it
    batches   number of micro-batches
    seconds   time from its first start to its last end
    why       error of a failed flow, in one line
    """

    name: str
    state: str
    rows_in: int | None = None
    rows_out: int | None = None
    lag: int | None = None
    batches: int = 0
    seconds: float = 0.0
    why: str | None = None


class RunReport(NamedTuple):
    """Result of one run; `seconds` from the first definition to the last event."""

    flows: tuple[FlowReport, ...]
    seconds: float

    @property
    def failure(self) -> str | None:
        """Name and error of the first failed flow, in one line; None if all succeeded."""
        for flow in self.flows:
            if flow.state == FAILED:
                return f"flow {flow.name} failed: {flow.why or 'Spark reported no reason'}"
        return None

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        state = FAILED if self.failure else "COMPLETED"
        return {
            "state": state,
            "seconds": round(self.seconds, 3),
            "flows": [{**flow._asdict(), "seconds": round(flow.seconds, 3)} for flow in self.flows],
        }


class FlowTracker:
    """State of the flows of a run, updated by its events."""

    def __init__(self, prefixes: Sequence[str] = ()) -> None:
        """Create a tracker; `prefixes` are removed from flow names: "spark_catalog.shop."."""
        self._prefixes = prefixes
        self._states: dict[str, str] = {}
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._why: dict[str, str] = {}

    def on_event(self, message: str, seconds: float) -> tuple[str, str] | None:
        """Process an event of the time `seconds`; return the flow and its new state, or None for other events."""
        head, _, rest = message.partition("\n")
        unresolved = _UNRESOLVED.match(head)
        matched = unresolved or _EVENT.match(head)
        if matched is None:
            return None
        name, state = self.short(matched["name"]), FAILED if unresolved else matched["state"]
        self._states[name] = state
        if state == "STARTING":
            self._began.setdefault(name, seconds)
        if state in _OVER:
            self._ended[name] = seconds
        if state == FAILED:
            self._why[name] = reason(rest.removeprefix("Error: "))
        return name, state

    def short(self, name: str) -> str:
        """Return the name of a flow without catalog and database."""
        for prefix in self._prefixes:
            name = name.removeprefix(prefix)
        return name

    @property
    def states(self) -> Mapping[str, str]:
        """Current state by flow."""
        return self._states

    def flows(
        self, figures: Mapping[str, tuple[int, int, int | None, int | None]], written: Mapping[str, int]
    ) -> tuple[FlowReport, ...]:
        """Return the reports of all flows.

        figures  by flow with a query: batches, rows in, rows out if known, lag
        written  rows added by table; all rows of materialized views
        """
        reports = []
        for name, state in self._states.items():
            batches, rows_in, rows_out, lag = figures.get(name, (0, None, None, None))
            if rows_out is None:
                rows_out = written.get(name)
            ended = self._ended.get(name, 0.0)
            took = ended - self._began.get(name, ended)
            why = self._why.get(name) if state == FAILED else None
            reports.append(FlowReport(name, state, rows_in, rows_out, lag, batches, max(took, 0.0), why))
        return tuple(reports)


def run_state(message: str) -> str | None:
    """Parse the state of the whole run from an event; None for other events."""
    matched = _RUN.match(message)
    return matched["state"] if matched else None


def growth(before: Mapping[str, int], after: Mapping[str, int], recomputed: Iterable[str]) -> dict[str, int]:
    """Return the rows added by table; tables in `recomputed` count from 0."""
    return {name: rows - (0 if name in set(recomputed) else before.get(name, 0)) for name, rows in after.items()}


def reason(error: str) -> str:
    """Shorten an error of Spark to one line: the exception of a Python traceback, otherwise the first line without codes."""
    lines = error.strip().splitlines()
    for number, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            for later in lines[number + 1 :]:
                if later and not later[0].isspace():
                    kind, colon, detail = later.partition(": ")
                    return f"{kind.rpartition('.')[2]}{colon}{_plain(detail)}"
    return _plain(lines[0]) if lines else ""


def _plain(line: str) -> str:
    return re.sub(r"\s*SQLSTATE: \w+", "", _STREAM.sub("", line)).strip()
