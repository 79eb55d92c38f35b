"""FindCoordinator: the broker that coordinates a group, a transactional id or a share partition.

Authorization
    group: DESCRIBE              GROUP_AUTHORIZATION_FAILED
    transactional id: DESCRIBE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    cluster: CLUSTER_ACTION      CLUSTER_AUTHORIZATION_FAILED for share partitions

Behaviour
    the internal topic is missing   it is created; if that fails, COORDINATOR_NOT_AVAILABLE
    its partition has no leader, or a log directory that failed   COORDINATOR_NOT_AVAILABLE
    an unknown key type             INVALID_REQUEST
    a share key that is not group:topic id:partition, or version 5 and older   INVALID_REQUEST
    errors come with node -1; a success of versions 1-3 says "NONE", as Kafka's does

Versions
    1  transactional ids (key type 1)
    4  several keys (KIP-699)
    6  share partitions (key type 2, KIP-932)
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster, may_use_group, may_use_transactional_id
from ottla.coordinators.partitions import partition_of
from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    error,
)
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

_TOPICS: Final = {0: OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC, 2: SHARE_STATE_TOPIC}
_TRANSACTION: Final = 1
_SHARE: Final = 2
_FIRST_WITH_SHARE: Final = 6
_FIRST_WITH_SEVERAL: Final = 4


class _Found(NamedTuple):
    error_code: int
    node_id: int = -1
    host: str = ""
    port: int = -1


@handles(FindCoordinatorRequest, rows="coordinator_keys")
async def find_coordinator(request: FindCoordinatorRequest, broker: Broker) -> FindCoordinatorResponse:
    name = _TOPICS.get(request.key_type)
    keys = request.coordinator_keys if request.context.version >= _FIRST_WITH_SEVERAL else [request.key]
    denied = {key: code for key in keys if (code := _denial(key, request)) != NONE}
    usable = [key for key in keys if key not in denied and _is_valid(key, request)]
    if name is not None and usable:
        await awaitable(broker.topics.provide_internal(name), broker.tasks)
    return _response(request, broker, denied)


def _denial(key: str, request: FindCoordinatorRequest) -> int:
    context = request.context
    if context.authorizer is None or request.key_type not in _TOPICS:
        return NONE
    if request.key_type == _SHARE:
        may_find = may_use_cluster(context, AclOperation.CLUSTER_ACTION)
        return NONE if may_find else CLUSTER_AUTHORIZATION_FAILED
    if request.key_type == _TRANSACTION:
        may_find = may_use_transactional_id(context, AclOperation.DESCRIBE, key)
        return NONE if may_find else TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return NONE if may_use_group(context, AclOperation.DESCRIBE, key) else GROUP_AUTHORIZATION_FAILED


def _response(request: FindCoordinatorRequest, broker: Broker, denied: Mapping[str, int]) -> FindCoordinatorResponse:
    if request.context.version < _FIRST_WITH_SEVERAL:
        coordinator = _Found(denied[request.key]) if denied else _find(request.key, request, broker)
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=error(coordinator.error_code).message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )
    coordinators = []
    for key in request.coordinator_keys:
        coordinator = _Found(denied[key]) if key in denied else _find(key, request, broker)
        has_text = request.key_type not in _TOPICS or (key in denied and request.key_type == _SHARE)
        coordinators.append(
            Coordinator(
                key=key,
                node_id=coordinator.node_id,
                host=coordinator.host,
                port=coordinator.port,
                error_code=coordinator.error_code,
                error_message=error(coordinator.error_code).message if has_text else "",
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(key: str, request: FindCoordinatorRequest, broker: Broker) -> _Found:
    name = _TOPICS.get(request.key_type)
    if name is None:
        return _Found(INVALID_REQUEST)
    if not _is_valid(key, request):
        return _Found(INVALID_REQUEST)
    topic = broker.image.topics.get(name)
    if topic is None:
        return _Found(COORDINATOR_NOT_AVAILABLE)
    leader = broker.view(topic, partition_of(key, len(topic.partitions))).leader
    node = broker.image.brokers.get(leader)
    if node is None:
        return _Found(COORDINATOR_NOT_AVAILABLE)
    address = broker.address_of(node, request.context)
    return _Found(COORDINATOR_NOT_AVAILABLE) if address is None else _Found(NONE, node.node_id, *address)


def _is_valid(key: str, request: FindCoordinatorRequest) -> bool:
    return request.key_type != _SHARE or (request.context.version >= _FIRST_WITH_SHARE and _is_share_key(key))


def _is_share_key(key: str) -> bool:
    """Return True for group:topic id:partition; the group may hold colons itself."""
    group, _, rest = key.rpartition(":")[0].rpartition(":")
    partition = key.rpartition(":")[2]
    try:
        return bool(group) and len(base64.urlsafe_b64decode(rest + "==")) == 16 and partition.isdecimal()
    except binascii.Error:
        return False
