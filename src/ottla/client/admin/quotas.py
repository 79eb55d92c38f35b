"""Admin requests about the quotas of users, client ids and addresses (KIP-546; since Kafka 2.6)."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, error_for
from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

ClientQuotaEntity = frozenset[tuple[str, str | None]]
"""Entity of a quota: {("user", "alice"), ("client-id", None)}; None is the default entity of a type."""


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


@checked_tuple
class QuotaFilter(NamedTuple):
    """Filter of entities by one component: its type, and its name, the default entity (None) or (`any`) any name."""

    entity_type: str
    name: str | None = None
    any: bool = False


class Quotas(Requests):
    """Requests about client quotas."""

    async def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False, timeout: float | None = None
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Describe the quotas of the entities that match all filters, by entity and quota name.

        strict  leave out entities with components that no filter names
        """
        components = []
        for condition in filters:
            kind = _Match.ANY if condition.any else _Match.DEFAULT if condition.name is None else _Match.EXACT
            name = condition.name if kind == _Match.EXACT else None
            components.append(ComponentData(entity_type=condition.entity_type, match_type=kind, match=name))

        async def attempt() -> dict[ClientQuotaEntity, dict[str, float]]:
            request = DescribeClientQuotasRequest(components=components, strict=strict)
            answer = await self.metadata.ask(-1, request)
            if answer.error_code != NONE:
                raise error_for(
                    answer.error_code, "describe quotas", answer.error_message, Permission("DescribeConfigs", "cluster")
                )
            return {
                frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
                    row.key: row.value for row in entry.values
                }
                for entry in answer.entries or ()
            }

        return await self.metadata.retrying("describe quotas", attempt, self.limit_ms(timeout))

    async def alter_client_quotas(
        self,
        quotas: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ClientQuotaEntity, None]:
        """Set quotas of entities by name ("producer_byte_rate"); None removes a quota."""

        async def ask(entities: list[ClientQuotaEntity]) -> dict[ClientQuotaEntity, KafkaError | None]:
            entries = [
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    ops=[
                        OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in quotas[entity].items()
                    ],
                )
                for entity in entities
            ]
            answer = await self.controller(AlterClientQuotasRequest(entries=entries, validate_only=validate_only))
            outcomes: dict[ClientQuotaEntity, KafkaError | None] = {}
            for row in answer.entries:
                entity = frozenset((part.entity_type, part.entity_name) for part in row.entity)
                outcomes[entity] = refusal(
                    row.error_code,
                    f"alter quotas of {_text_of(entity)}",
                    row.error_message,
                    Permission("AlterConfigs", "cluster"),
                )
            return outcomes

        return await self.repeating("alter quotas", quotas, ask, timeout)


def _text_of(entity: ClientQuotaEntity) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in sorted(entity, key=str))
