"""Client quotas of logged-in users: which of Kafka's eight levels applies, and who shares a rate.

A quota is met by the throttle time of one Produce: next to nothing throttles every request, and a huge one none.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Wire

from .codes import TOPIC, WRITE
from .conftest import Acls, Authorized, Resources

Entity = tuple[tuple[str, str | None], ...]
RATE: Final = "producer_byte_rate"
TINY: Final = 1.0
HUGE: Final = 1e12
EXACT, DEFAULT, ANY = 0, 1, 2


def levels(user: str, client_id: str) -> list[Entity]:
    """Return the entities that a client belongs to, the one that decides first: None is the default of its type."""
    return [
        (("user", user), ("client-id", client_id)),
        (("user", user), ("client-id", None)),
        (("user", user),),
        (("user", None), ("client-id", client_id)),
        (("user", None), ("client-id", None)),
        (("user", None),),
        (("client-id", client_id),),
        (("client-id", None),),
    ]


NAMES: Final = [
    "user-client",
    "user-any_client",
    "user",
    "any_user-client",
    "any_user-any_client",
    "any_user",
    "client",
    "any_client",
]


class Quotas:
    """Quotas of one test, removed at its end."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._set: dict[Entity, None] = {}

    def set(self, values: Mapping[Entity, float]) -> None:
        """Make these the only quotas, and wait until they are in force."""
        removed = [entity for entity in self._set if entity not in values]
        self._set = dict.fromkeys(values)
        self._alter({**dict.fromkeys(removed), **values})

    def _alter(self, values: Mapping[Entity, float | None]) -> None:
        entries = [
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key=RATE, value=value or 0.0, remove=value is None)],
            )
            for entity, value in values.items()
        ]
        if not entries:
            return
        answers = self._wire.send(AlterClientQuotasRequest(entries=entries), 1).entries
        assert [(result.error_code, result.error_message) for result in answers] == [(NONE, None)] * len(entries)
        if self._wire.is_kafka:
            time.sleep(0.3)  # Apache Kafka applies them after its answer

    def described(
        self, *components: tuple[str, int, str | None], strict: bool
    ) -> dict[frozenset[tuple[str, str | None]], float]:
        """Return the quotas that a filter finds."""
        parts = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
        answer = self._wire.send(DescribeClientQuotasRequest(components=parts, strict=strict), 1)
        assert answer.error_code == NONE, answer.error_message
        return {
            frozenset((part.entity_type, part.entity_name) for part in entry.entity): entry.values[0].value
            for entry in answer.entries
        }


@pytest.fixture
def quotas(root: Wire) -> Iterator[Quotas]:
    made = Quotas(root)
    yield made
    made.set({})


@pytest.fixture
def topic(acls: Acls, resources: Resources) -> str:
    """A topic to which all users may write."""
    name = resources.topic().name
    acls.allow("*", WRITE, TOPIC, name)
    return name


class Sender:
    """Sends records as a user; each on a connection of its own, as a throttled one is not read for a time."""

    def __init__(self, broker: Authorized, topic: str) -> None:
        self._broker = broker
        self._topic = topic

    def throttle_ms(self, user: str, client_id: str, size: int = 100) -> int:
        """Return the throttle time of one request."""
        batch = build([Record(0, 1_700_000_000_000, b"k", bytes(size))])
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        wire = self._broker.user_wire(user, client_id=client_id)
        answer = wire.send(ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 9)
        wire.close()
        assert answer.responses[0].partition_responses[0].error_code == NONE
        return int(answer.throttle_time_ms)


@pytest.fixture
def sender(authorized: Authorized, topic: str) -> Sender:
    return Sender(authorized, topic)


@pytest.fixture
def client_id() -> str:
    return f"client-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("level", range(8), ids=NAMES)
def test_the_most_specific_quota_applies(quotas: Quotas, sender: Sender, client_id: str, level: int) -> None:
    """Each level wins over all that come after it, whichever is lower."""
    entities = levels("alice", client_id)
    decides, others = entities[level], entities[level + 1 :]
    quotas.set({decides: HUGE} | dict.fromkeys(others, TINY))
    assert sender.throttle_ms("alice", client_id) == 0
    quotas.set({decides: TINY} | dict.fromkeys(others, HUGE))
    assert sender.throttle_ms("alice", client_id) > 0


@pytest.mark.parametrize("level", range(8), ids=NAMES)
def test_quotas_of_others_do_not_count(quotas: Quotas, sender: Sender, client_id: str, level: int) -> None:
    """Those of another user, of another client, and of the default where a name was meant."""
    entity = levels("alice", client_id)[level]
    quotas.set({entity: TINY})
    names = dict(entity)
    is_of_any = names.get("user") is None and names.get("client-id") is None
    other = ("bob" if names.get("user") else "alice", "another" if names.get("client-id") else client_id)
    assert (sender.throttle_ms(*other) > 0) == is_of_any


@pytest.mark.parametrize(
    ("level", "shares_with_clients", "shares_with_users"),
    [(1, False, None), (2, True, None), (4, False, False), (5, True, False), (6, None, True), (7, False, True)],
    ids=[NAMES[number] for number in (1, 2, 4, 5, 6, 7)],
)
def test_clients_of_one_quota_share_its_rate(
    quotas: Quotas,
    sender: Sender,
    client_id: str,
    level: int,
    shares_with_clients: bool | None,
    shares_with_users: bool | None,
) -> None:
    """One client uses up the quota: another of the same user, or of another user, is throttled too if it shares the rate."""
    user, other = ("carol", "dave") if level != 2 else ("erin", "dave")
    quotas.set({levels(user, client_id)[level]: 2000})
    assert sum(sender.throttle_ms(user, client_id, 50_000) for _ in range(2)) > 0
    if shares_with_clients is not None:
        assert (sender.throttle_ms(user, f"{client_id}-2") > 0) == shares_with_clients
    if shares_with_users is not None:
        assert (sender.throttle_ms(other, client_id) > 0) == shares_with_users


def test_quotas_are_listed_by_entity(quotas: Quotas, client_id: str) -> None:
    entities = levels("alice", client_id)
    quotas.set({entity: float(number + 1) for number, entity in enumerate(entities)})
    whole = {frozenset(entity): float(number + 1) for number, entity in enumerate(entities)}
    assert quotas.described(strict=False) == whole
    users = ("user", EXACT, "alice")
    assert sorted(quotas.described(users, strict=False).values()) == [1, 2, 3]
    assert sorted(quotas.described(users, strict=True).values()) == [3]
    assert sorted(quotas.described(("user", DEFAULT, None), strict=False).values()) == [4, 5, 6]
    assert sorted(quotas.described(("user", ANY, None), strict=True).values()) == [3, 6]
    assert sorted(quotas.described(users, ("client-id", DEFAULT, None), strict=True).values()) == [2]
    assert sorted(quotas.described(("client-id", ANY, None), strict=True).values()) == [7, 8]
    assert sorted(quotas.described(("client-id", EXACT, client_id), strict=False).values()) == [1, 4, 7]
