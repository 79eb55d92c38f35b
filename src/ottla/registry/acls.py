"""ACLs of the cluster, read again and again: Kafka does not report their changes to clients."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ottla import aio
from ottla.client.errors import KafkaError
from ottla.registry.permissions import Permissions
from ottla.security.acls import Acl

_logger = logging.getLogger("ottla.registry")
_PERIOD_S: Final = 30.0
_PAUSE_S: Final = 1.0


async def follow_acls(client_configs: Mapping[str, object], permissions: Permissions) -> None:
    """Read the ACLs every 30 s. What was read last holds while they cannot be read."""
    reported = ""
    while True:
        try:
            async with aio.Admin(dict(client_configs)) as admin:
                bindings = await admin.describe_acls()
        except KafkaError as failed:
            if str(failed) != reported:  # once for each reason
                _logger.warning("the ACLs of the cluster cannot be read: %s", failed)
            reported = str(failed)
            await asyncio.sleep(_PAUSE_S)
            continue
        reported = ""
        permissions.apply(
            Acl(
                pattern.resource_type,
                pattern.pattern_type,
                pattern.name,
                entry.principal,
                entry.host,
                entry.operation,
                entry.permission_type,
            )
            for pattern, entry in bindings
        )
        await asyncio.sleep(_PERIOD_S)
