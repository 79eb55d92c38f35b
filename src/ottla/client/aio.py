"""The clients for asyncio: each a thin face of the same core that the blocking classes show.

The core runs on the loop that is running when a client is made, without a task of its own. Nothing is decided in this file.
Timeouts are seconds, as in confluent-kafka.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ottla.client.admin.core import AdminCore
from ottla.client.config import ClientConfig, dotted
from ottla.client.core import Core
from ottla.client.loop import LoopSurroundings, wait
from ottla.client.scheduler import Promise
from ottla.client.share.consumer import CommitCallback, CommitResults, ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType
from ottla.client.waiting import milliseconds
from ottla.records.record import Record

T = TypeVar("T")
P = ParamSpec("P")


class Asynchronous:
    """A client of a cluster that lives until `close`, or the end of its `async with` block.

    config   Kafka's names and values: {"bootstrap.servers": "localhost:9092"}
    options  the same as keywords: bootstrap_servers="localhost:9092"
    """

    def __init__(self, config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
        self.config = ClientConfig({**(config or {}), **dotted(options)})
        self._core = Core(self.config, LoopSurroundings(asyncio.get_running_loop()))

    async def _run(self, coroutine: Coroutine[Promise[Any], None, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        return await wait(self._core.scheduler, coroutine)

    async def close(self) -> None:
        """End it."""
        self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class ShareConsumer(Asynchronous):
    """A member of a share group (KIP-932); see `ottla.ShareConsumer`, whose methods these are.

    async with ShareConsumer(bootstrap_servers="localhost:9092", group_id="jobs") as consumer:
        consumer.subscribe(["work"])
        async for record in consumer:
            ...
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        super().__init__(config, options)
        self._share = ShareConsumerCore(self._core)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Share these topics, in place of those before."""
        self._share.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group; what is not acknowledged is released."""
        await self._run(self._share.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics."""
        return self._share.subscription

    async def poll(self, timeout: float | None = None) -> list[Record]:
        """Up to max.poll.records records; empty when none came within `timeout` seconds (None: wait for some)."""
        return await self._run(self._share.poll(milliseconds(timeout)))

    def acknowledge(self, record: Record, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what becomes of a record of the last poll (explicit mode). Raises IllegalState."""
        self._share.acknowledge(record, kind)

    async def commit(self, timeout: float | None = 60.0) -> CommitResults:
        """Tell the brokers what was said of records, and wait: partition -> None, or why not. Raises RequestTimedOut."""
        return await self._run(self._share.commit(milliseconds(timeout)))

    def commit_async(self) -> None:
        """Tell the brokers what was said of records; the callback hears the outcome."""
        self._share.commit_soon()

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Call `callback({partition: offsets}, error)` whenever acknowledgements were answered."""
        self._share.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are ours after a poll; None before a broker said."""
        return self._share.lock_ms

    @property
    def member_id(self) -> str:
        """As the group knows this consumer."""
        return self._share.member_id

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records, for ever."""
        while True:
            for record in await self.poll():
                yield record

    async def close(self, timeout: float | None = 30.0) -> None:
        """Accept what the last poll returned (implicit mode), release the rest, leave the group."""
        await self._run(self._share.close(milliseconds(timeout)))


def _awaits(
    method: Callable[Concatenate[AdminCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """A method of the core as a coroutine of asyncio."""

    async def awaiting(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(method(self._admin, *args, **kwargs))

    update_wrapper(awaiting, method)
    return awaiting


class Admin(Asynchronous):
    """Everything an administrator asks of a cluster; see `ottla.Admin`, whose methods these are."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        super().__init__(config, options)
        self._admin = AdminCore(self._core)

    create_topics = _awaits(AdminCore.create_topics)
    create_partitions = _awaits(AdminCore.create_partitions)
    delete_topics = _awaits(AdminCore.delete_topics)
    list_topics = _awaits(AdminCore.list_topics)
    describe_topics = _awaits(AdminCore.describe_topics)
    delete_records = _awaits(AdminCore.delete_records)
    list_offsets = _awaits(AdminCore.list_offsets)
    describe_configs = _awaits(AdminCore.describe_configs)
    alter_configs = _awaits(AdminCore.alter_configs)
    incremental_alter_configs = _awaits(AdminCore.incremental_alter_configs)
    list_config_resources = _awaits(AdminCore.list_config_resources)
    list_groups = _awaits(AdminCore.list_groups)
    delete_groups = _awaits(AdminCore.delete_groups)
    describe_consumer_groups = _awaits(AdminCore.describe_consumer_groups)
    describe_classic_groups = _awaits(AdminCore.describe_classic_groups)
    list_consumer_group_offsets = _awaits(AdminCore.list_consumer_group_offsets)
    alter_consumer_group_offsets = _awaits(AdminCore.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _awaits(AdminCore.delete_consumer_group_offsets)
    remove_members_from_consumer_group = _awaits(AdminCore.remove_members_from_consumer_group)
    describe_share_groups = _awaits(AdminCore.describe_share_groups)
    list_share_group_offsets = _awaits(AdminCore.list_share_group_offsets)
    alter_share_group_offsets = _awaits(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = _awaits(AdminCore.delete_share_group_offsets)
    describe_cluster = _awaits(AdminCore.describe_cluster)
    api_versions = _awaits(AdminCore.api_versions)
    describe_features = _awaits(AdminCore.describe_features)
    update_features = _awaits(AdminCore.update_features)
    unregister_broker = _awaits(AdminCore.unregister_broker)
    describe_log_dirs = _awaits(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = _awaits(AdminCore.alter_replica_log_dirs)
    alter_partition_reassignments = _awaits(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = _awaits(AdminCore.list_partition_reassignments)
    elect_leaders = _awaits(AdminCore.elect_leaders)
    describe_client_quotas = _awaits(AdminCore.describe_client_quotas)
    alter_client_quotas = _awaits(AdminCore.alter_client_quotas)
    describe_user_scram_credentials = _awaits(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = _awaits(AdminCore.alter_user_scram_credentials)
    describe_producers = _awaits(AdminCore.describe_producers)
    list_transactions = _awaits(AdminCore.list_transactions)
    describe_transactions = _awaits(AdminCore.describe_transactions)
    abort_transaction = _awaits(AdminCore.abort_transaction)
    fence_producers = _awaits(AdminCore.fence_producers)
    force_terminate_transaction = _awaits(AdminCore.force_terminate_transaction)
