"""Id under which a client pushes its metrics (KIP-714)."""

from ottla.client.core import Core
from ottla.client.errors import IllegalState, RequestTimedOut


async def client_instance_id(core: Core, timeout_ms: int) -> str | None:
    """Return the id of a client instance that a broker has chosen; None if no broker did within `timeout_ms`.

    Raises IllegalState with enable.metrics.push=false, BrokersUnreachable and other KafkaErrors of connections.
    """
    if not core.config["enable.metrics.push"]:
        raise IllegalState("the client instance id needs the config enable.metrics.push=true")

    async def attempt() -> str:
        await core.metadata.any_link()
        while core.telemetry is None:
            await core.network.changed.wait()
        while (instance_id := core.telemetry.instance_id) is None:
            await core.telemetry.changed.wait()
        return instance_id

    try:
        return await core.metadata.retrying("client instance id", attempt, timeout_ms)
    except RequestTimedOut:
        return None
