"""The limit of changes of the metadata by one request: 10,000 records, as Apache Kafka's controller writes at once.

What is refused for another reason does not count, but for CreatePartitions, which counts its topics.
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    POLICY_VIOLATION,
    RESOURCE_NOT_FOUND,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.alter_configs import AlterableConfig as PlainConfig
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as PlainResource
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.schema import Request

from .conftest import Wire

MOST = 10_000
GROUP = 32
TOO_LARGE = "Unable to perform excessively large batch operation."
NOT_ALLOWED = "Request parameters do not satisfy the configured policy."


def names(count: int) -> list[str]:
    prefix = uuid.uuid4().hex[:8]
    return [f"{prefix}-{number}" for number in range(count)]


def outcomes(rows: Sequence[Any]) -> dict[tuple[int, str | None], int]:
    return Counter((row.error_code, row.error_message) for row in rows)


def scram(count: int) -> Request:
    upsertions = [
        ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32))
        for name in names(count)
    ]
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)


def quotas(count: int, key: str = "producer_byte_rate", *, validate_only: bool = False) -> Request:
    entries = [
        EntryData(
            entity=[EntityData(entity_type="client-id", entity_name=name)],
            ops=[OpData(key=key, value=1e9, remove=False)],
        )
        for name in names(count)
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def edits(count: int, name: str = "consumer.session.timeout.ms", *, validate_only: bool = False) -> Request:
    resources = [
        AlterConfigsResource(
            resource_type=GROUP,
            resource_name=group,
            configs=[AlterableConfig(name=name, config_operation=0, value="46000")],
        )
        for group in names(count)
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def replacements(count: int) -> Request:
    config = PlainConfig(name="consumer.session.timeout.ms", value="46000")
    resources = [PlainResource(resource_type=GROUP, resource_name=name, configs=[config]) for name in names(count)]
    return AlterConfigsRequest(resources=resources, validate_only=True)


def growth(count: int) -> Request:
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in names(count)]
    return CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=False)


@pytest.mark.parametrize(
    ("asked", "in_version", "rows", "expected"),
    [
        pytest.param(scram(MOST + 1), 0, "results", (UNKNOWN_SERVER_ERROR, None), id="users"),
        pytest.param(quotas(MOST + 1), 1, "entries", (POLICY_VIOLATION, NOT_ALLOWED), id="quotas"),
        pytest.param(
            quotas(MOST + 1, validate_only=True), 1, "entries", (POLICY_VIOLATION, NOT_ALLOWED), id="validated quotas"
        ),
        pytest.param(edits(MOST + 1), 1, "responses", (POLICY_VIOLATION, TOO_LARGE), id="edits"),
        pytest.param(
            edits(MOST + 1, validate_only=True), 1, "responses", (POLICY_VIOLATION, TOO_LARGE), id="validated edits"
        ),
        pytest.param(replacements(MOST + 1), 2, "responses", (POLICY_VIOLATION, TOO_LARGE), id="replacements"),
        pytest.param(growth(MOST + 1), 3, "results", (POLICY_VIOLATION, TOO_LARGE), id="partitions"),
    ],
)
def test_more_changes_than_a_request_may_make_refuse_all_of_it(
    broker: Wire, asked: Request, in_version: int, rows: str, expected: tuple[int, str | None]
) -> None:
    assert outcomes(getattr(broker.send(asked, in_version), rows)) == {expected: MOST + 1}


@pytest.mark.parametrize(
    ("asked", "in_version", "rows", "code"),
    [
        pytest.param(quotas(MOST + 1, "no_quota"), 1, "entries", INVALID_REQUEST, id="invalid quotas"),
        pytest.param(edits(MOST + 1, "no.config"), 1, "responses", INVALID_CONFIG, id="invalid edits"),
        pytest.param(growth(MOST), 3, "results", UNKNOWN_TOPIC_OR_PARTITION, id="unknown topics"),
        pytest.param(
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in names(MOST + 1)], upsertions=[]
            ),
            0,
            "results",
            RESOURCE_NOT_FOUND,
            id="unknown users",
        ),
    ],
)
def test_what_changes_nothing_does_not_count(
    broker: Wire, asked: Request, in_version: int, rows: str, code: int
) -> None:
    results = getattr(broker.send(asked, in_version), rows)
    assert {row.error_code for row in results} == {code}
    assert len(results) >= MOST
