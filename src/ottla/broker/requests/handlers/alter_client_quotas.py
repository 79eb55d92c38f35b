"""AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546, KIP-612).

Authorization
    cluster: ALTER_CONFIGS   CLUSTER_AUTHORIZATION_FAILED for each entry

Behaviour
    one entity's error              INVALID_REQUEST with Kafka's message; the other entities are altered
    an entity or a quota twice      INVALID_REQUEST, answered once
    an address                      an IP address, or a host name that can be resolved
    validate only                   everything is checked, nothing is changed
    more than 10,000 changes        POLICY_VIOLATION for each, and nothing is changed

Versions
    1  flexible
"""

from collections import Counter
from collections.abc import Callable

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.metadata import Conflict, outdated
from ottla.metadata.refusal import CHANGED, MOST_RECORDS, ChangeResult, Refused
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
    error,
)
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
)
from ottla.security.operations import AclOperation
from ottla.security.quotas import (
    IP,
    Entity,
    InvalidQuota,
    QuotaChange,
    apply_changes,
    check_entity,
    duplicate,
    entity_of,
)


@handles(AlterClientQuotasRequest, rows="entries", is_whole=True)
async def alter_client_quotas(request: AlterClientQuotasRequest, broker: Broker) -> AlterClientQuotasResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER_CONFIGS):
        return _for_each(request, CLUSTER_AUTHORIZATION_FAILED)
    requested: dict[Entity, list[QuotaChange]] = {}
    times: Counter[Entity] = Counter()
    for entry in request.entries:
        await broker.tasks.pace()
        entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
        requested[entity] = [QuotaChange(operation.key, operation.value, operation.remove) for operation in entry.ops]
        times[entity] += 1
    outcomes: dict[Entity, ChangeResult] = {}
    result = CHANGED
    for image in broker.metadata.attempts():
        altered: dict[Entity, dict[str, float]] = {}
        records = 0
        for entity, quotas in requested.items():
            await broker.tasks.pace()
            outcomes[entity] = CHANGED
            try:
                if times[entity] > 1 or len({change.key for change in quotas}) < len(quotas):
                    raise duplicate(entity)
                check_entity(entity)
                _check_address(entity, broker.resolve)
                current = image.quotas.get(entity, {})
                altered[entity] = apply_changes(entity, current, quotas)
                records += len({key for key, _ in current.items() ^ altered[entity].items()})
            except InvalidQuota as cause:
                outcomes[entity] = ChangeResult(INVALID_REQUEST, str(cause))
        if records > MOST_RECORDS:
            return _for_each(request, POLICY_VIOLATION)
        if request.validate_only:
            break
        try:
            for change in changes.set_quotas(image, altered, broker.metadata.largest_change):
                await broker.metadata.commit(change)
        except Conflict:
            continue
        except Refused as refused:
            result = ChangeResult(refused.code, refused.message)
        break
    else:
        result = ChangeResult(REQUEST_TIMED_OUT, outdated().message)
    entries = []
    for entity, outcome in outcomes.items():
        await broker.tasks.pace()
        code, message = result if outcome == CHANGED else outcome
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        entries.append(AlterClientQuotasResponseEntryData(error_code=code, error_message=message, entity=parts))
    return AlterClientQuotasResponse(entries=entries)


def _for_each(request: AlterClientQuotasRequest, code: int) -> AlterClientQuotasResponse:
    entries = [
        AlterClientQuotasResponseEntryData(
            error_code=code,
            error_message=error(code).message,
            entity=[EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


def _check_address(entity: Entity, resolve: Callable[[str], str | None]) -> None:
    """Raise InvalidQuota for an invalid address."""
    for kind, name in entity:
        if kind == IP and name is not None and resolve(name) is None:
            raise InvalidQuota(f"{name} is not a valid IP or resolvable host.")
