"""CreatePartitions: more partitions for topics that exist (KIP-195).

Behaviour
    a name twice                INVALID_REQUEST "Duplicate topic name.", answered once
    unknown topic               UNKNOWN_TOPIC_OR_PARTITION, without a text
    as many as there are, fewer INVALID_PARTITIONS
    assignments                 one for each new partition, else INVALID_REPLICA_ASSIGNMENT
    validate only               everything is checked, nothing is made
    mutation quota used up      THROTTLING_QUOTA_EXCEEDED; before version 3 the client is throttled only (KIP-599)

Versions
    1  throttled
"""

from collections import Counter
from typing import TYPE_CHECKING

from ottla.broker.dispatch import handles
from ottla.broker.throttling import Mutations
from ottla.metadata.refusal import Refused
from ottla.protocol.answer import Answer
from ottla.protocol.api import CREATE_PARTITIONS
from ottla.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker


@handles(CreatePartitionsRequest)
def create_partitions(request: CreatePartitionsRequest, broker: "Broker") -> Answer[CreatePartitionsResponse]:
    times = Counter(wanted.name for wanted in request.topics)
    results = []
    mutations = Mutations(broker.throttling, CREATE_PARTITIONS, request.context)
    for name, wanted in {wanted.name: wanted for wanted in request.topics}.items():
        code, message = NONE, None
        try:
            if times[name] > 1:
                raise Refused(INVALID_REQUEST, "Duplicate topic name.")
            code = _grow(wanted, broker, mutations, validate_only=request.validate_only)
        except Refused as refused:
            code, message = refused.code, refused.message
        results.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
    return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms, results=results)


def _grow(wanted: CreatePartitionsTopic, broker: "Broker", mutations: Mutations, *, validate_only: bool) -> int:
    """Make the partitions, unless only asked whether it could. Raises Refused."""
    topic = broker.image.topics.get(wanted.name)
    if topic is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    assignments = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
    grown = broker.controller.grow(topic, wanted.count, assignments)
    mutations.add(len(grown.partitions) - len(topic.partitions))
    if not validate_only:
        broker.controller.change(grown)
    return NONE
