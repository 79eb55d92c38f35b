"""DescribeClientQuotas and AlterClientQuotas: what is taken, what is refused with which words, and which entities a filter
matches."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ottla.protocol.errors import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

from .conftest import Wire, versions
from .members import wait_for

Entity = tuple[tuple[str, str | None], ...]
Alter = Callable[..., tuple[int, str | None]]
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(entity: Entity, ops: dict[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def described(
    broker: Wire, components: Sequence[tuple[str, int, str | None]], *, strict: bool, version: int = 1
) -> Any:
    parts = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
    return broker.send(DescribeClientQuotasRequest(components=parts, strict=strict), version)


def quotas_in(answer: Any) -> dict[Entity, dict[str, float]]:
    assert answer.error_code == NONE, answer.error_message
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in row.entity)): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries
    }


@pytest.fixture
def alter(broker: Wire) -> Iterator[Alter]:
    """Alter one entity; what was set is taken away at the end."""
    altered: dict[Entity, set[str]] = {}

    def send(entity: Entity, ops: dict[str, float | None], *, version: int = 1, validate_only: bool = False) -> Any:
        request = AlterClientQuotasRequest(entries=[entry(entity, ops)], validate_only=validate_only)
        answers = broker.send(request, version).entries
        assert len(answers) == 1
        altered.setdefault(entity, set()).update(ops)
        return answers[0].error_code, answers[0].error_message

    yield send
    entries = [entry(entity, dict.fromkeys(keys)) for entity, keys in altered.items()]
    for row in entries:
        broker.send(AlterClientQuotasRequest(entries=[row]), 1)


@pytest.fixture
def user() -> str:
    return f"u-{uuid.uuid4().hex[:12]}"


@pytest.mark.api(request=AlterClientQuotasRequest)
@pytest.mark.parametrize("version", versions(AlterClientQuotasRequest))
def test_what_is_set_is_described_and_taken_away(broker: Wire, alter: Alter, user: str, version: int) -> None:
    entity = (("user", user),)
    quotas: dict[str, float | None] = {
        "producer_byte_rate": 1000.0,
        "consumer_byte_rate": 2.0**62,
        "request_percentage": 0.5,
        "controller_mutation_rate": 0.25,
    }
    assert alter(entity, quotas, version=version) == (NONE, None)
    components = [("user", EXACT, user)]
    wait_for(lambda: quotas_in(described(broker, components, strict=False, version=version)) == {entity: quotas})
    gone: dict[str, float | None] = {"producer_byte_rate": None, "request_percentage": None, "no_such_quota": None}
    assert alter(entity, gone, version=version) == (NONE, None)
    left = {key: value for key, value in quotas.items() if key not in gone}
    wait_for(lambda: quotas_in(described(broker, components, strict=True, version=version)) == {entity: left})
    assert alter(entity, dict.fromkeys(left), version=version) == (NONE, None)
    wait_for(lambda: quotas_in(described(broker, components, strict=False, version=version)) == {})


def test_validate_only_changes_nothing(broker: Wire, alter: Alter, user: str) -> None:
    assert alter((("user", user),), {"producer_byte_rate": 1000.0}, validate_only=True) == (NONE, None)
    assert alter((("user", user),), {"nope": 1000.0}, validate_only=True)[0] == INVALID_REQUEST
    assert quotas_in(described(broker, [("user", EXACT, user)], strict=False)) == {}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("nope", 1.0, "Invalid configuration key nope"),
        ("connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ("producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate", 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
        ("consumer_byte_rate", 9.3e18, "Proposed value for consumer_byte_rate is too large for a LONG."),
        ("request_percentage", 0.0, "Quota request_percentage must be greater than 0"),
        ("producer_byte_rate", float("nan"), "Quota producer_byte_rate must be a finite number"),
        ("producer_byte_rate", float("inf"), "Quota producer_byte_rate must be a finite number"),
        ("controller_mutation_rate", -0.5, "Quota controller_mutation_rate must be greater than 0"),
    ],
)
def test_values_of_users_and_clients(alter: Alter, user: str, key: str, value: float, why: str) -> None:
    assert alter((("user", user),), {key: value}) == (INVALID_REQUEST, why)
    assert alter((("client-id", user),), {key: value}) == (INVALID_REQUEST, why)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("connection_creation_rate", 5.5, "connection_creation_rate cannot be a fractional value."),
        ("connection_creation_rate", 2.0**31, "Proposed value for connection_creation_rate is too large for an INT."),
        ("connection_creation_rate", 0.0, "Quota connection_creation_rate must be greater than 0"),
        ("producer_byte_rate", 5.0, "Invalid configuration key producer_byte_rate"),
    ],
)
def test_values_of_addresses(alter: Alter, key: str, value: float, why: str) -> None:
    assert alter((("ip", "192.0.2.1"),), {key: value}) == (INVALID_REQUEST, why)


@pytest.mark.parametrize(
    ("entity", "why"),
    [
        ((), "Invalid empty client quota entity"),
        ((("planet", "x"),), "Unhandled client quota entity type: planet"),
        ((("user", ""),), "Empty user not supported"),
        ((("client-id", ""),), "Empty client-id not supported"),
        (
            (("ip", "192.0.2.1"), ("user", "u")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            (("client-id", "c"), ("ip", "192.0.2.1")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ((("ip", "not a host!!"),), "not a host!! is not a valid IP or resolvable host."),
    ],
)
def test_entities(broker: Wire, entity: Entity, why: str) -> None:
    request = AlterClientQuotasRequest(entries=[entry(entity, {"connection_creation_rate": 5.0})])
    answers = broker.send(request, 1).entries
    assert [(result.error_code, result.error_message) for result in answers] == [(INVALID_REQUEST, why)]
    parts = [(part.entity_type, part.entity_name) for part in answers[0].entity]
    assert sorted(parts) == sorted(entity)


def test_one_entity_twice_is_answered_once(broker: Wire, user: str) -> None:
    why = f"Ignoring duplicate entity ClientQuotaEntity(entries={{user={user}}})"
    entries = [entry((("user", user),), {key: 5.0}) for key in ("producer_byte_rate", "consumer_byte_rate")]
    answers = broker.send(AlterClientQuotasRequest(entries=entries), 1).entries
    assert [(result.error_code, result.error_message) for result in answers] == [(INVALID_REQUEST, why)]
    twice = entry((("user", user),), {"producer_byte_rate": 5.0})
    twice.ops.append(twice.ops[0])
    answers = broker.send(AlterClientQuotasRequest(entries=[twice]), 1).entries
    assert [(result.error_code, result.error_message) for result in answers] == [(INVALID_REQUEST, why)]


def test_one_entitys_error_is_not_anothers(broker: Wire, alter: Alter, user: str) -> None:
    alter((("user", user),), {})  # so that it is taken away at the end
    entries = [
        entry((("user", user),), {"producer_byte_rate": 5.0}),
        entry((("planet", "x"),), {"producer_byte_rate": 5.0}),
    ]
    answers = broker.send(AlterClientQuotasRequest(entries=entries), 1).entries
    assert sorted(result.error_code for result in answers) == [NONE, INVALID_REQUEST]
    wait_for(lambda: len(quotas_in(described(broker, [("user", EXACT, user)], strict=False))) == 1)
    alter((("user", user),), {"producer_byte_rate": None})


def test_nothing_is_altered_by_nothing(broker: Wire) -> None:
    assert broker.send(AlterClientQuotasRequest(entries=[]), 1).entries == []


@pytest.fixture
def mine(broker: Wire, alter: Alter, user: str) -> dict[str, Entity]:
    """Entities of every shape, with quotas that have no effect on other clients."""
    entities: dict[str, Entity] = {
        "user": (("user", user),),
        "any user": (("user", None),),
        "client": (("client-id", user),),
        "any client": (("client-id", None),),
        "both": (("client-id", user), ("user", user)),
        "any client of": (("client-id", None), ("user", user)),
        "any both": (("client-id", None), ("user", None)),
        "address": (("ip", "192.0.2.7"),),
        "any address": (("ip", None),),
    }
    for entity in entities.values():
        key = "connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate"
        assert alter(entity, {key: 2.0**30}) == (NONE, None)
    wait_for(lambda: set(quotas_in(described(broker, [], strict=False))) >= set(entities.values()))
    return entities


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, "user, any user, client, any client, both, any client of, any both, address, any address"),
        ([], True, ""),
        ([("user", EXACT, "?")], False, "user, both, any client of"),
        ([("user", EXACT, "?")], True, "user"),
        ([("user", DEFAULT, None)], False, "any user, any both"),
        ([("user", DEFAULT, None)], True, "any user"),
        ([("user", ANY, None)], False, "user, any user, both, any client of, any both"),
        ([("user", ANY, None)], True, "user, any user"),
        ([("user", ANY, None), ("client-id", ANY, None)], True, "both, any client of, any both"),
        ([("user", EXACT, "?"), ("client-id", DEFAULT, None)], False, "any client of"),
        ([("client-id", EXACT, "?")], False, "client, both"),
        ([("client-id", ANY, None)], True, "client, any client"),
        ([("ip", EXACT, "192.0.2.7")], False, "address"),
        ([("ip", ANY, None)], True, "address, any address"),
        ([("ip", DEFAULT, None)], False, "any address"),
        ([("user", EXACT, "")], False, ""),
    ],
)
def test_filters(
    broker: Wire,
    mine: dict[str, Entity],
    user: str,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    expected: str,
) -> None:
    asked = [(kind, match, user if name == "?" else name) for kind, match, name in components]
    answer = quotas_in(described(broker, asked, strict=strict))
    assert {entity for entity in answer if entity in mine.values()} == {
        mine[name] for name in expected.split(", ") if name
    }


@pytest.mark.parametrize(
    ("components", "code", "why"),
    [
        ([("planet", ANY, None)], UNSUPPORTED_VERSION, "Unsupported entity type planet"),
        ([("", ANY, None)], INVALID_REQUEST, "Invalid empty entity type."),
        ([("user", 3, None)], INVALID_REQUEST, "Unknown match type 3"),
        ([("user", -1, None)], INVALID_REQUEST, "Unknown match type -1"),
        ([("user", EXACT, None)], INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        (
            [("user", DEFAULT, "x")],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", ANY, "x")],
            INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        (
            [("user", EXACT, "a"), ("user", EXACT, "b")],
            INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("ip", EXACT, "192.0.2.7"), ("user", EXACT, "a")],
            INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ],
)
def test_invalid_filters_are_refused(
    broker: Wire, components: list[tuple[str, int, str | None]], code: int, why: str
) -> None:
    answer = described(broker, components, strict=False)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, why, None)
