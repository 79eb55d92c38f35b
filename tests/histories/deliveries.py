"""Anomalies of a queue over a share group (KIP-932): values that are produced, delivered and acknowledged.

    invented        a delivery holds a value that was never produced, or at another place than its producer was told
    moved           two deliveries have a value at different places
    duplicate       two values, or one value twice, at the places that producers were told
    after its end   a value is delivered by a poll that began after its acceptance or rejection was confirmed
    too often       a delivery has a count over the limit of the group
    count           a delivery has a count that is not larger than the number of confirmed releases before it
    lost            a value was produced, the group was read until it was empty, and it was never delivered

A release or an acceptance counts as confirmed when its response says so: brokers have then written it to the share coordinator.
Deliveries alone are not written, as in Apache Kafka: a new leader counts those that were only acquired again, so a value may be
delivered more often than the limit says; the count that a delivery has may never exceed it. The lock of a record is longer than
any fault, and acknowledgements follow within a second, so that a poll never returns a record whose lock has expired.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from .operations import FAIL, OK, Anomaly, Operation

PRODUCE: Final = "produce"
POLL: Final = "poll"
ACKNOWLEDGE: Final = "acknowledge"
LEAVE: Final = "leave"
DRAINED: Final = "drained"
"""Kind of the mark that the group was read until it was empty, after the end of all producers."""
ACCEPT: Final = "accept"
RELEASE: Final = "release"
REJECT: Final = "reject"
Place = tuple[int, int]
"""Partition and offset."""


class Delivery(NamedTuple):
    """Record of a poll.

    number  its delivery count
    """

    place: Place
    value: int
    number: int
    operation: Operation


def deliveries_of(history: Iterable[Operation]) -> list[Delivery]:
    """Return all deliveries of a history."""
    return [
        Delivery((partition, offset), value, count, operation)
        for operation in history
        if operation.kind == POLL
        for partition, offset, value, count in operation.result.get("records", ())
    ]


def confirmed(history: Iterable[Operation]) -> Iterable[tuple[Place, str, Operation]]:
    """Return the acknowledgements that were confirmed, in the order of their completion."""
    done = [one for one in history if one.kind == ACKNOWLEDGE and one.outcome == OK]
    for operation in sorted(done, key=lambda one: one.completed):
        good = frozenset(operation.result.get("partitions", ()))
        for partition, offset, kind in operation.request["records"]:
            if partition in good:
                yield (partition, offset), kind, operation


def anomalies(history: Sequence[Operation], limit: int) -> list[Anomaly]:
    """Return the anomalies of a history; `limit` is the number of deliveries after which the group archives a record."""
    deliveries = deliveries_of(history)
    return [
        *_places(history, deliveries),
        *_ended(history, deliveries),
        *_counts(history, deliveries, limit),
        *_lost(history, deliveries),
    ]


def _places(history: Sequence[Operation], deliveries: Sequence[Delivery]) -> Iterable[Anomaly]:
    produced = {one.request["value"]: one for one in history if one.kind == PRODUCE}
    values: dict[Place, tuple[int, int]] = {}
    for value, one in produced.items():
        if one.outcome == OK:
            place = (one.result["partition"], one.result["offset"])
            before, number = values.setdefault(place, (value, one.number))
            if before != value:
                yield Anomaly("duplicate", f"{before} and {value} were acknowledged at {place}", (number, one.number))
    first: dict[int, Delivery] = {}
    for delivery in deliveries:
        number = delivery.operation.number
        producer = produced.get(delivery.value)
        if producer is None or producer.outcome == FAIL:
            yield Anomaly("invented", f"{delivery.value} at {delivery.place} was not produced", (number,))
            continue
        before, by = values.get(delivery.place, (delivery.value, number))
        if before != delivery.value:
            text = f"{delivery.value} was delivered at {delivery.place}, where {before} was acknowledged"
            yield Anomaly("invented", text, (by, number))
        earlier = first.setdefault(delivery.value, delivery)
        known = {earlier.place}
        if producer.outcome == OK:
            known.add((producer.result["partition"], producer.result["offset"]))
        if known != {delivery.place}:
            text = f"{delivery.value} was delivered at {delivery.place}, and is at {sorted(known)}"
            yield Anomaly("moved", text, (producer.number, earlier.operation.number, number))


def _ended(history: Sequence[Operation], deliveries: Sequence[Delivery]) -> Iterable[Anomaly]:
    ends: dict[Place, tuple[str, Operation]] = {}
    for place, kind, operation in confirmed(history):
        if kind != RELEASE:
            ends.setdefault(place, (kind, operation))
    for delivery in deliveries:
        kind, end = ends.get(delivery.place, ("", None))
        if end is not None and delivery.operation.invoked > end.completed:
            text = f"{delivery.value} at {delivery.place} was delivered again after its {kind} was confirmed"
            yield Anomaly("after its end", text, (end.number, delivery.operation.number))


def _counts(history: Sequence[Operation], deliveries: Sequence[Delivery], limit: int) -> Iterable[Anomaly]:
    releases: dict[Place, list[Operation]] = defaultdict(list)
    for place, kind, operation in confirmed(history):
        if kind == RELEASE:
            releases[place].append(operation)
    for delivery in deliveries:
        poll = delivery.operation
        if delivery.number > limit:
            text = f"{delivery.value} at {delivery.place} was delivered for the {delivery.number}th time of {limit}"
            yield Anomaly("too often", text, (poll.number,))
        before = [one for one in releases.get(delivery.place, ()) if one.completed < poll.invoked]
        if len(before) >= delivery.number:
            text = f"{delivery.value} at {delivery.place} has the count {delivery.number} after {len(before)} releases"
            yield Anomaly("count", text, (*(one.number for one in before), poll.number))


def _lost(history: Sequence[Operation], deliveries: Sequence[Delivery]) -> Iterable[Anomaly]:
    drained = next((one for one in history if one.kind == DRAINED and one.outcome == OK), None)
    if drained is None:
        return
    delivered = {delivery.value for delivery in deliveries}
    for one in history:
        if one.kind == PRODUCE and one.outcome == OK and one.request["value"] not in delivered:
            place = (one.result["partition"], one.result["offset"])
            text = f"{one.request['value']} was acknowledged at {place}, and never delivered"
            yield Anomaly("lost", text, (one.number, drained.number))
