"""Random walk of requests by several users under changing ACLs: one broker against the rules, or two brokers side by side.

    python -m tests.conformance.authorization.walk --ottla HOST:PORT,PORT --kafka PORT --requests 100000 --seed N

`--ottla` has the ports of the listeners PLAINTEXT and SASL of a broker with the configs of authorized.py; `--kafka` is the port
that authorized.py was given. With one of them only, answers are compared with the rules (rules.py). The walk depends on the
seed alone; a difference is printed with the ACLs in force, and ends the walk.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    NONE,
    NOT_COORDINATOR,
)
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for

from . import bindings
from .authorized import USERS, listener_ports
from .bindings import Binding
from .codes import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DENIED,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)
from .conftest import Authorized, Resources, connect_to
from .denials import normalized, rows, signs
from .messages import api_named, error_codes, plain, request, values_at
from .probes import EMPTY, HIDDEN, Names, Probe, all_probes
from .rules import Rules, contradiction
from .test_authorized_operations import POSSIBLE

TOPICS: Final = tuple(f"walk-{name}" for name in ("a", "ab", "abc", "b"))
GROUPS: Final = tuple(f"group-{name}" for name in ("a", "ab", "b"))
TRANSACTIONAL_IDS: Final = tuple(f"tx-{name}" for name in ("a", "ab", "b"))
OWNERS: Final = ("owner-a", "owner-ab")
WALKERS: Final = USERS[:4]
_LEFT_OUT: Final = frozenset(
    (
        "DeleteTopics",  # destroys the topics of the walk
        "DeleteTopics-by_id",
        "CreateDelegationToken",  # makes a token each time
        "ShareFetch",  # opens sessions, and answers as offsets move
        "AlterShareGroupOffsets",  # waits for state of topics
        "DeleteShareGroupOffsets",
        "InitializeShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
    )
)
_CHANGED: Final[dict[str, dict[str, Any]]] = {
    # Nobody joins: the epoch is that of no member.
    "ConsumerGroupHeartbeat": {"member_epoch": 7},
    "ShareGroupHeartbeat": {"member_epoch": 7},
}
_RETRIED: Final = frozenset(
    (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS)
)
_CHANGE_RATE: Final = 0.04
_MOST_ACLS: Final = 60
NOT_SHOWN: Final = -(2**31)


class Step(NamedTuple):
    """One request of the walk."""

    user: str
    row: Probe
    version: int
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    owner: str

    def __str__(self) -> str:
        return f"{self.user}: {self.row} v{self.version} of {self.topics} {self.groups} {self.transactional_ids}"


class Target:
    """One broker of the walk, with a connection for each user."""

    def __init__(self, name: str, broker: Authorized) -> None:
        self.name = name
        self.broker = broker
        self.root = broker.super_wire()
        self._wires: dict[str, Wire] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Create the topics, groups and transactional ids of the walk; topics of an earlier one are deleted.

        Retention is off: the records have old timestamps, and brokers would delete them at different times.
        """
        make_topic = TopicFactory(self.root)
        fields = {"topics": [{"name": name} for name in TOPICS], "timeout_ms": 10_000}
        self.root.send(request("DeleteTopics", fields), 6)
        wait_for(lambda: not self._existing_topics())
        self.ids = {name: make_topic(name=name, retention_ms="-1").id for name in TOPICS}
        resources = Resources(self.root)
        for group in GROUPS:
            resources.commit(group, TOPICS)
        for transactional_id in TRANSACTIONAL_IDS:
            fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
            self._retried(self.root, "InitProducerId", fields, 4)

    def _existing_topics(self) -> list[str]:
        fields = {"topics": [{"name": name} for name in TOPICS], "allow_auto_topic_creation": False}
        answer = plain(self.root.send(request("Metadata", fields), 12), 12)
        return [topic["name"] for topic in answer["topics"] if topic["error_code"] == NONE]

    def _retried(self, wire: Wire, api: str, fields: dict[str, Any], version: int) -> Any:
        for _ in range(50):
            answer = plain(wire.send(request(api, fields), version), version)
            if not _RETRIED & set(error_codes(answer)):
                return answer
            time.sleep(0.02)
        return answer

    def wire(self, user: str) -> Wire:
        """Return the connection of a user."""
        if user not in self._wires:
            self._wires[user] = self.broker.user_wire(user)
        return self._wires[user]

    def names(self, step: Step) -> Names:
        """Return the names of a step, with the topic ids of this broker."""
        ids = {name: self.ids[name] for name in step.topics}
        return Names(step.topics, ids, step.groups, step.transactional_ids, step.owner, step.user)

    def ask(self, step: Step) -> Any:
        """Send the request of a step and return its answer."""
        fields = step.row.fields(self.names(step), step.version) | _CHANGED.get(str(step.row), {})
        return self._retried(self.wire(step.user), step.row.api, fields, step.version)

    def change(self, created: Sequence[Binding], deleted: Sequence[Binding]) -> None:
        """Create and delete ACLs, and wait until that is in force."""
        if deleted:
            bindings.delete(self.root, *deleted)
        bindings.create(self.root, *created)

    def close(self) -> None:
        """Delete the ACLs and close the connections."""
        bindings.delete_all(self.root)
        self.root.close()
        for wire in self._wires.values():
            wire.close()


def _metadata_bits(names: Names, version: int) -> dict[str, Any]:
    topics = [{"name": name} for name in names.topics]
    fields = {"topics": topics, "allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    return fields | ({"include_cluster_authorized_operations": True} if version <= 10 else {})


def _group_bits(names: Names, version: int) -> dict[str, Any]:
    return {"groups": list(names.groups), "include_authorized_operations": True}


def _cluster_bits(names: Names, version: int) -> dict[str, Any]:
    return {"include_cluster_authorized_operations": True}


BITS: Final = (
    Probe("Metadata", "bits", range(8, 14), _metadata_bits, ()),
    Probe("DescribeGroups", "bits", range(3, 7), _group_bits, ()),
    Probe("DescribeCluster", "bits", range(3), _cluster_bits, ()),
)


class Walk:
    """The random part: ACLs and steps by a seed, the same for all brokers."""

    def __init__(self, seed: int, offers: Sequence[dict[int, tuple[int, int]]]) -> None:
        self._dice = random.Random(seed)
        self.acls: list[Binding] = []
        self._rows = [
            (row, versions)
            for row in (*all_probes(), *BITS)
            if str(row) not in _LEFT_OUT and (versions := [v for v in row.versions if _in_all(row, v, offers)])
        ]

    def step(self) -> Step:
        """Return the next request."""
        row, versions = self._dice.choice(self._rows)
        many = row.many if row.checks else TOPIC
        return Step(
            self._dice.choice(WALKERS),
            row,
            self._dice.choice(versions),
            self._some(TOPICS, many == TOPIC or "all" in row.about),
            self._some(GROUPS, many == GROUP),
            self._some(TRANSACTIONAL_IDS, many == TRANSACTIONAL_ID),
            self._dice.choice(OWNERS),
        )

    def _some(self, names: tuple[str, ...], many: bool) -> tuple[str, ...]:
        count = self._dice.randint(1, len(names)) if many else 1
        return tuple(self._dice.sample(names, count))

    def change(self) -> tuple[list[Binding], list[Binding]]:
        """Return ACLs to create and to delete, in some steps of the walk."""
        if self.acls and self._dice.random() >= _CHANGE_RATE:
            return [], []
        deleted: list[Binding] = []
        if len(self.acls) > self._dice.randrange(_MOST_ACLS):
            deleted = self._dice.sample(self.acls, self._dice.randint(1, len(self.acls)))
        known = set(self.acls)
        drawn = dict.fromkeys(self._acl() for _ in range(self._dice.randint(1, 12)))
        created = [acl for acl in drawn if acl not in known]
        dropped = set(deleted)
        self.acls = [acl for acl in self.acls if acl not in dropped] + created
        return created, deleted

    def _acl(self) -> Binding:
        dice = self._dice
        resource_type = dice.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, TRANSACTIONAL_ID, CLUSTER, USER))
        name, pattern = CLUSTER_NAME, LITERAL
        if resource_type != CLUSTER:
            names = {TOPIC: TOPICS, GROUP: GROUPS, TRANSACTIONAL_ID: TRANSACTIONAL_IDS, USER: ("User:owner-a",)}
            name = dice.choice(names[resource_type])
            form = dice.random()
            if form < 0.15:
                name = "*"
            elif form < 0.4:
                name, pattern = name[: dice.randint(1, len(name))], PREFIXED
        return Binding(
            dice.choice((ALL, READ, WRITE, DESCRIBE, *OPERATIONS)),
            resource_type,
            name,
            dice.choice((*(f"User:{user}" for user in WALKERS), "User:*", "Group:alice", "User:Alice")),
            DENY if dice.random() < 0.2 else ALLOW,
            pattern,
            dice.choice(
                ("*", "*", "*", "127.0.0.1", "127.0.0.0/8", "0.0.0.0/0", "10.0.0.0/8", "127.0.0.2", "localhost")
            ),
        )


def _in_all(row: Probe, version: int, offers: Sequence[dict[int, tuple[int, int]]]) -> bool:
    key = api_named(row.api).key
    if row.api == "Produce" and version < 3:
        return False
    return all(key in versions and versions[key][0] <= version <= versions[key][1] for versions in offers)


def outcome(step: Step, names: Names, answer: Any) -> Any:
    """Return what of an answer has to be equal on all brokers: what says which rights there are, and whole refusals."""
    marks = signs(names)
    result: dict[str, Any] = {}
    for check in step.row.checks:
        if check.code == HIDDEN:
            ours = [marks[value] for value in values_at(answer, check.path) if value in marks]
            result[check.path] = sorted(ours)
        elif check.code == EMPTY:
            result[check.path] = bool(values_at(answer, check.path))
        else:
            result[check.path] = sorted(rows(answer, check.path, marks))
    codes = set(error_codes(answer))
    result["codes"] = sorted(codes)
    if not step.row.checks:
        result["bits"] = sorted(_bits(answer))
    if codes - {0} and codes <= DENIED:
        result["answer"] = normalized(answer, marks)
    return result


def _bits(answer: Any) -> list[tuple[str, int]]:
    """Return the bit fields by resource; a group that is reported as missing has none."""
    if isinstance(answer, list):
        return [pair for value in answer for pair in _bits(value)]
    if not isinstance(answer, dict):
        return []
    label = str(answer.get("name") or answer.get("group_id") or "")
    if answer.get("error_code") == GROUP_ID_NOT_FOUND:
        return []
    bits = [(label, value) for key, value in answer.items() if key.endswith("authorized_operations")]
    return bits + [pair for value in answer.values() for pair in _bits(value)]


def wrong_bits(step: Step, answer: Any, rules: Rules) -> str | None:
    """Return what is wrong with bit fields by the rules."""
    for label, value in _bits(answer):
        kind, name = (TOPIC, label) if label in TOPICS else (GROUP, label) if label else (CLUSTER, CLUSTER_NAME)
        expected = rules.bits(POSSIBLE[kind], kind, name)
        if not rules.allow(DESCRIBE, kind, name):
            expected = 0 if kind == CLUSTER else NOT_SHOWN
        if step.row.api == "Metadata" and kind == CLUSTER and step.version > 10:
            continue
        if value != expected:
            return f"bits of {label!r}: {value}, expected {expected}"
    return None


def run(
    targets: Sequence[Target],
    requests: int,
    seed: int,
    report: Callable[[str], None] = lambda text: None,
    *,
    stop_at_first: bool = True,
) -> list[str]:
    """Walk, and return the differences."""
    walk = Walk(seed, [target.broker.offers for target in targets])
    differences: list[str] = []
    for number in range(requests):
        created, deleted = walk.change()
        for target in targets if created or deleted else ():
            target.change(created, deleted)
        step = walk.step()
        answers = [target.ask(step) for target in targets]
        difference = _difference(walk, step, targets, answers)
        if difference:
            acls = "\n".join(f"    {acl}" for acl in walk.acls)
            differences.append(f"seed {seed}, request {number}, {step}\n{difference}\nACLs:\n{acls}")
            report(differences[-1])
            if stop_at_first:
                break
        if number % 1000 == 999:
            report(f"{number + 1} requests, {len(walk.acls)} ACLs, {len(differences)} differences")
    return differences


def _difference(walk: Walk, step: Step, targets: Sequence[Target], answers: Sequence[Any]) -> str | None:
    rules = Rules(walk.acls, step.user)
    for target, answer in zip(targets, answers, strict=True):
        names = target.names(step)
        wrong = wrong_bits(step, answer, rules)
        if step.row.checks:
            wrong = contradiction(step.row, names, answer, rules, DENIED)
        if wrong:
            return f"{target.name} contradicts the rules: {wrong}\n{answer}"
    outcomes = [outcome(step, target.names(step), answer) for target, answer in zip(targets, answers, strict=True)]
    for target, other in zip(targets[1:], outcomes[1:], strict=True):
        if not _alike(outcomes[0], other):
            return f"{targets[0].name}: {outcomes[0]}\n{target.name}: {other}"
    return None


def _alike(one: Any, other: Any) -> bool:
    """Compare outcomes; texts of Java objects and the order of refused rows do not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        pairs = zip(sorted(one, key=str), sorted(other, key=str), strict=True)
        return all(_alike(first, second) for first, second in pairs)
    if "<any text>" in (one, other):
        return True
    return bool(one == other)


def main() -> int:
    """Run the walk of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ottla", metavar="HOST:PORT,PORT")
    parser.add_argument("--kafka", metavar="PORT", type=int)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="go on after a difference")
    arguments = parser.parse_args()
    targets: list[Target] = []
    if arguments.ottla:
        host, _, ports = arguments.ottla.rpartition(":")
        assert host in ("127.0.0.1", "localhost"), "the users' ACLs are for clients on 127.0.0.1"
        plaintext, sasl = map(int, ports.split(","))
        targets.append(Target("Ottla", connect_to({"PLAINTEXT": plaintext, "SASL": sasl}, is_kafka=False)))
    if arguments.kafka:
        targets.append(Target("Apache Kafka", connect_to(listener_ports(arguments.kafka), is_kafka=True)))
    if not targets:
        parser.error("--ottla or --kafka is required")
    begun = time.monotonic()
    differences = run(targets, arguments.requests, arguments.seed, print, stop_at_first=not arguments.all)
    for target in targets:
        target.close()
    print(f"{arguments.requests} requests, {len(differences)} differences, {time.monotonic() - begun:.0f} s")  # noqa: T201
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
