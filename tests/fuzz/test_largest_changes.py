"""Requests that change as much as one may, and are carried out: the passes of the loop stay short while they take effect.

What the hostile requests of `test_costs` name does not exist, so most of them end in errors; the second time nothing is new.

`python -m tests.fuzz.test_largest_changes RECORDS PARTITIONS` prints what each takes.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.metadata.refusal import MOST_RECORDS
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.schema import Request, Struct
from ottla.security.acl_requests import ANY
from ottla.security.acls import ALLOW, LITERAL
from ottla.security.operations import AclOperation, AclResourceType
from tests.fuzz.measured import MeasuredBroker
from tests.fuzz.test_costs import ATTEMPTS, BOUND_MS

PARTITIONS: Final = 1000
"""Fewer than may be created: each is a log on disk."""
SCRAM_SHA_256: Final = 1
GROUP, TOPIC = 32, 2
"""Types of resources with configs."""
SET: Final = 0
USER: Final = "user"


class Step(NamedTuple):
    """A request that changes much, or reads what was changed."""

    name: str
    version: int
    request: Request


def largest_changes(count: int, partitions: int) -> Iterator[Step]:
    """Requests with `count` changes each, which build on one another, and those that read what they have made."""
    names = [f"name-{number}" for number in range(count)]
    topics = names[: partitions // 10]
    yield Step("CreateAcls", 3, CreateAclsRequest(creations=[_acl(name) for name in names]))
    yield Step(
        "DescribeAcls",
        3,
        DescribeAclsRequest(
            resource_type_filter=AclResourceType.TOPIC,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        ),
    )
    yield Step("DeleteAcls", 3, DeleteAclsRequest(filters=[_acls_of("User:all")]))
    yield Step("AlterClientQuotas", 1, _quotas(names, remove=False))
    yield Step("DescribeClientQuotas", 1, DescribeClientQuotasRequest(components=[], strict=False))
    yield Step("AlterClientQuotas, removed", 1, _quotas(names, remove=True))
    upsertions = [
        ScramCredentialUpsertion(
            name=name, mechanism=SCRAM_SHA_256, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        for name in names
    ]
    yield Step("AlterUserScramCredentials", 0, AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))
    yield Step("DescribeUserScramCredentials", 0, DescribeUserScramCredentialsRequest(users=None))
    deletions = [ScramCredentialDeletion(name=name, mechanism=SCRAM_SHA_256) for name in names]
    yield Step(
        "AlterUserScramCredentials, removed", 0, AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])
    )
    yield Step("IncrementalAlterConfigs of groups", 1, _configs(GROUP, names, "consumer.session.timeout.ms", "50000"))
    yield Step("CreateTopics", 7, _topics(topics, 1))
    yield Step("IncrementalAlterConfigs of topics", 1, _configs(TOPIC, topics, "retention.ms", "1000000"))
    more = [CreatePartitionsTopic(name=name, count=5, assignments=None) for name in topics]
    yield Step("CreatePartitions", 3, CreatePartitionsRequest(topics=more, timeout_ms=60_000, validate_only=False))
    states = [DeleteTopicState(name=name, topic_id=bytes(16)) for name in topics]
    yield Step("DeleteTopics", 6, DeleteTopicsRequest(topics=states, timeout_ms=60_000))
    yield Step("CreateTopics, one", 7, _topics(["one"], partitions))
    one = [DeleteTopicState(name="one", topic_id=bytes(16))]
    yield Step("DeleteTopics, one", 6, DeleteTopicsRequest(topics=one, timeout_ms=60_000))


def _acl(name: str) -> AclCreation:
    return AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:all",
        host="*",
        operation=AclOperation.READ,
        permission_type=ALLOW,
    )


def _acls_of(principal: str) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=AclResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=principal,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def _quotas(users: list[str], *, remove: bool) -> AlterClientQuotasRequest:
    operations = [OpData(key="producer_byte_rate", value=1e6, remove=remove)]
    entries = [EntryData(entity=[EntityData(entity_type=USER, entity_name=user)], ops=operations) for user in users]
    return AlterClientQuotasRequest(entries=entries, validate_only=False)


def _topics(names: list[str], partitions: int) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


def _configs(kind: int, names: list[str], config: str, value: str) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=config, config_operation=SET, value=value)]
    resources = [AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs) for name in names]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def errors(value: Any) -> Iterator[str]:
    """Every error in a response."""
    if isinstance(value, list):
        for element in value:
            yield from errors(element)
    elif isinstance(value, Struct):
        code = getattr(value, "error_code", 0)
        if code:
            yield f"{code} {getattr(value, 'error_message', None)}"
        for field in type(value).FIELDS:
            yield from errors(getattr(value, field.name))


def longest_passes(count: int, partitions: int) -> dict[str, float]:
    """Carry out the changes; return the CPU of the longest pass of each, in milliseconds."""
    with MeasuredBroker() as broker:  # it collects garbage before each: what earlier steps have made is not theirs
        for step in largest_changes(1, 10):
            broker.measured_call(step.request, step.version)
        longest = {}
        for step in largest_changes(count, partitions):
            response, longest[step.name] = broker.measured_call(step.request, step.version)
            assert not set(errors(response)), step.name
    return longest


def test_the_largest_changes_never_hold_the_loop() -> None:
    least: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        for name, ms in longest_passes(MOST_RECORDS, PARTITIONS).items():
            least[name] = min(ms, least.get(name, ms))
        slow = {name: ms for name, ms in least.items() if ms > BOUND_MS}
        if not slow:
            break
    assert slow == {}


def test_an_error_in_a_response_is_found() -> None:
    with MeasuredBroker(measures_memory=False) as broker:
        response, _ = broker.measured_call(_topics(["a name"], 1), 7)
    assert list(errors(response)) != []


if __name__ == "__main__":
    for name, ms in longest_passes(int(sys.argv[1]), int(sys.argv[2])).items():
        sys.stdout.write(f"{ms:8.1f} ms  {name}\n")
