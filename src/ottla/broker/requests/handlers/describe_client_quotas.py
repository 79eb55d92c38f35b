"""DescribeClientQuotas: the quotas of the entities that a filter matches (KIP-546).

Authorization
    cluster: DESCRIBE_CONFIGS   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    strict                  only entities without any type that the filter does not name
    an invalid filter       INVALID_REQUEST; an unknown type of entity UNSUPPORTED_VERSION

Versions
    1  flexible
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNSUPPORTED_VERSION
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.security.operations import AclOperation
from ottla.security.quotas import Component, InvalidQuota, UnknownEntityType, check_filter, matching


@handles(DescribeClientQuotasRequest, response_rows="entries")
async def describe_client_quotas(request: DescribeClientQuotasRequest, broker: Broker) -> DescribeClientQuotasResponse:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(error_code=CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None)
    # Of the three types none may come twice: further components change neither the answer nor the error.
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components[:4]]
    try:
        check_filter(components)
    except InvalidQuota as cause:
        code = UNSUPPORTED_VERSION if isinstance(cause, UnknownEntityType) else INVALID_REQUEST
        return DescribeClientQuotasResponse(error_code=code, error_message=str(cause), entries=None)
    quotas = broker.image.quotas
    entries = []
    for entity in matching(quotas, components, strict=request.strict):
        await broker.tasks.pace()
        entries.append(
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas[entity].items())],
            )
        )
    return DescribeClientQuotasResponse(error_message="", entries=entries)
