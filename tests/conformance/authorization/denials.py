"""Answers of Apache Kafka to requests without rights, and how to write and compare them.

    python -m tests.conformance.authorization.denials PORT     record denials.jsonl from an Apache Kafka with authorized.py

Each line has an answer (names replaced by signs such as <topic 0>), and, for requests with rows of their own for several
resources, the rows of a request of which the first and the third resource are denied.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from .bindings import Binding, create, delete_all
from .codes import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID
from .probes import HIDDEN, Check, Names, Probe, cases, shown_id

PATH: Final = Path(__file__).with_name("denials.jsonl")
_SIGNS: Final = {TOPIC: "topic", GROUP: "group", TRANSACTIONAL_ID: "transactional id"}
_VOLATILE: Final = frozenset(
    ("throttle_time_ms", "cluster_id", "host", "port", "brokers", "node_endpoints", "member_id", "session_id")
)
_ANY_TEXT: Final = "<any text>"
_TRIALS: Final = 6


def signs(names: Names) -> dict[str | bytes, str]:
    """Return the sign in place of each name and topic id."""
    by_name: dict[str | bytes, str] = {f"User:{names.owner}": "<owner>", names.owner: "<owner>"}
    for resource_type, sign in _SIGNS.items():
        for number, name in enumerate(names.of_type(resource_type)):
            by_name[name] = f"<{sign} {number}>"
    for number, name in enumerate(names.topics):
        if name in names.ids:
            by_name[names.ids[name]] = f"<id {number}>"
            by_name[shown_id(names.ids[name])] = f"<id {number}>"
    return by_name


def normalized(answer: Any, marks: Mapping[str | bytes, str]) -> Any:
    """Return an answer without what differs between runs, with signs in place of names."""
    if isinstance(answer, dict):
        return {key: normalized(value, marks) for key, value in answer.items() if key not in _VOLATILE}
    if isinstance(answer, list):
        return [normalized(value, marks) for value in answer]
    if isinstance(answer, bytes):
        return marks.get(answer, answer.hex())
    if isinstance(answer, str):
        if "Request(processor=" in answer:
            return _ANY_TEXT
        for name, sign in marks.items():
            if isinstance(name, str):
                answer = answer.replace(name, sign)
    return answer


def matches(actual: Any, expected: Any) -> bool:
    """Compare normalized answers; texts of Java objects match any text."""
    if expected == _ANY_TEXT:
        return isinstance(actual, str)
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(matches(actual[key], value) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(matches(one, other) for one, other in zip(actual, expected, strict=True))
        )
    return bool(actual == expected)


def rows(answer: Any, path: str, marks: Mapping[str | bytes, str], label: str = "") -> Iterator[tuple[str, int]]:
    """Return (sign of the resource, code) for each code at a path, in the order of the answer."""
    part, _, rest = path.partition(".")
    value = answer[part.removesuffix("[]")]
    if not part.endswith("[]"):
        yield label, value
        return
    for item in value:
        named = [marks[field] for field in item.values() if isinstance(field, str | bytes) and field in marks]
        yield from rows(item, rest, marks, named[0] if named else label)


def denied_in_a_row(row: Probe) -> Check | None:
    """Return the check that some of several resources may fail, if they have error codes of their own."""
    if row.many is None:
        return None
    checks = [check for check in row.checks if check.resource_type == row.many and check.code != HIDDEN]
    return checks[-1] if checks else None


def rights(user: str, row: Probe, names: Names, checks: int | None = None) -> list[Binding]:
    """Return the ACLs for the first checks of a row, by default all."""
    return [
        Binding(check.operation, check.resource_type, name, f"User:{user}")
        for check in row.checks[:checks]
        for name in names.of_type(check.resource_type)
    ]


def partly(row: Probe, names: Names, which: slice) -> Names:
    """Return the names with some of the resources of which a row has many."""
    return {
        TOPIC: names._replace(topics=names.topics[which]),
        GROUP: names._replace(groups=names.groups[which]),
        TRANSACTIONAL_ID: names._replace(transactional_ids=names.transactional_ids[which]),
        CLUSTER: names,
    }[row.many or CLUSTER]


@cache
def recorded() -> dict[tuple[str, int, int | str], Any]:
    """Return the recorded answers by row, version, and number of the denied check or "rows"."""
    lines = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
    return {(str(line["row"]), int(line["version"]), line["denied"]): line["answer"] for line in lines}


def main(port: int) -> None:
    """Record."""
    from .authorized import listener_ports
    from .conftest import Resources, ask, connect_to
    from .messages import api_named

    broker = connect_to(listener_ports(port), is_kafka=True)
    root, alice = broker.super_wire(), broker.user_wire("alice")
    resources = Resources(root)
    lines: list[dict[str, Any]] = []
    for row, version in cases():
        first, last = broker.offers[api_named(row.api).key]
        if not max(first, 3 if row.api == "Produce" else 0) <= version <= last:
            continue
        for number in range(len(row.checks)):
            names = resources.names(existing=row.existing)
            create(root, *rights("alice", row, names, number))
            answer = normalized(ask(alice, row, version, names), signs(names))
            if row.checks[number].code == HIDDEN:
                answer = None
            lines.append({"row": str(row), "version": version, "denied": number, "answer": answer})
            delete_all(root)
        check = denied_in_a_row(row)
        if check is not None:
            trials = []
            for _ in range(_TRIALS):
                names = resources.names(3, existing=row.existing)
                create(root, *rights("alice", row, partly(row, names, slice(1, 2))))
                answer = ask(alice, row, version, names)
                trials.append([list(entry) for entry in rows(answer, check.path, signs(names))])
                delete_all(root)
            same = all(one == trials[0] for one in trials)
            assert all(sorted(one) == sorted(trials[0]) for one in trials), (row, trials)
            lines.append(
                {"row": str(row), "version": version, "denied": "rows", "answer": {"ordered": same, "rows": trials[0]}}
            )
        print(row, version, lines[-1])  # noqa: T201
    PATH.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]))
