"""OffsetCommit: store the offsets of a group.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED for each partition
    topic: READ   TOPIC_AUTHORIZATION_FAILED for its partitions

Behaviour
    unknown topic or partition          UNKNOWN_TOPIC_OR_PARTITION; by id UNKNOWN_TOPIC_ID; listed before the committed ones,
                                        with one row for each topic
    more than offset.metadata.max.bytes OFFSET_METADATA_TOO_LARGE; the other partitions are committed
    no generation, group Empty or new   accepted: a consumer that assigns itself its partitions
    no generation, live group           UNKNOWN_MEMBER_ID
    unknown member                      UNKNOWN_MEMBER_ID
    another generation                  ILLEGAL_GENERATION
    instance id taken by another        FENCED_INSTANCE_ID
    the leader has not assigned yet     REBALANCE_IN_PROGRESS
    a generation, but no such group     GROUP_ID_NOT_FOUND; before version 9 ILLEGAL_GENERATION

Versions
    0  no generation or member; Kafka kept these offsets in ZooKeeper, Ottla keeps them with the others. Its clients (Kafka
       0.8.1) have no FindCoordinator, so that this request creates the offsets topic as well
    1  a timestamp per partition
    2  RetentionTimeMs, up to version 4 (removed by KIP-211)
    6  leader epochs (KIP-320)
    7  static members (KIP-345)
    10 topic ids
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.unknown_partitions import merge_rows, reject_unknown
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators import offsets
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable


@handles(OffsetCommitRequest, rows="topics.partitions")
async def offset_commit(request: OffsetCommitRequest, broker: Broker) -> OffsetCommitResponse:
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return offsets.refuse_commit(request, GROUP_AUTHORIZATION_FAILED)
    if request.context.version == 0:
        await awaitable(broker.topics.provide_internal(OFFSETS_TOPIC), broker.tasks)
    refused = reject_unknown(request, request.context.version, broker.image, request.context)
    if not request.topics:
        return OffsetCommitResponse(topics=list(refused.values()))
    committed = await awaitable(broker.groups.run(request.group_id, offsets.commit, request), broker.tasks)
    return merge_rows(refused, committed) if refused else committed
