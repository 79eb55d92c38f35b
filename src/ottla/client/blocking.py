"""The clients for code that blocks: each a thin face of the same core that `ottla.aio` shows.

The core runs on a loop in a thread that all of them share; a call waits here until the core has done its part. Nothing is
decided in this file. Timeouts are seconds, as in confluent-kafka.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ottla.client.admin.core import AdminCore
from ottla.client.config import ClientConfig, dotted
from ottla.client.core import Core
from ottla.client.loop import Background
from ottla.client.scheduler import Promise
from ottla.client.share.consumer import CommitCallback, CommitResults, ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType
from ottla.records.record import Record

T = TypeVar("T")
P = ParamSpec("P")
_FOREVER_MS = 2**40


def milliseconds(seconds: float | None) -> int:
    """A timeout as the core takes it; None waits as long as it takes."""
    return _FOREVER_MS if seconds is None else max(int(seconds * 1000), 0)


class Blocking:
    """A client of a cluster that lives until `close`, or the end of its `with` block.

    config   Kafka's names and values: {"bootstrap.servers": "localhost:9092"}
    options  the same as keywords: bootstrap_servers="localhost:9092"
    """

    def __init__(self, config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
        self.config = ClientConfig({**(config or {}), **dotted(options)})
        self._background = Background.acquire()
        self._released = False
        self._core = self._call(lambda: Core(self.config, self._background.surroundings))

    def _call(self, function: Callable[[], T]) -> T:
        """Run a function on the core's thread."""
        return self._background.call(function)

    def _run(self, coroutine: Coroutine[Promise[Any], None, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        return self._background.run(self._core.scheduler, coroutine)

    def _release(self) -> None:
        """Give up the connections, and the thread."""
        if not self._released:
            self._released = True
            self._call(self._core.close)
            self._background.release()

    def close(self) -> None:
        """End it."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ShareConsumer(Blocking):
    """A member of a share group (KIP-932): records are shared by all members, and each is acknowledged by itself.

    Implicit mode accepts what a poll returned when the next one begins; with share_acknowledgement_mode="explicit" every
    record is acknowledged by `acknowledge`, and `commit` or the next poll tells the broker.

        with ShareConsumer(bootstrap_servers="localhost:9092", group_id="jobs") as consumer:
            consumer.subscribe(["work"])
            for record in consumer:
                ...

    Not for two threads at once. Raises InvalidClientConfig.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        super().__init__(config, options)
        try:
            self._share = self._call(lambda: ShareConsumerCore(self._core))
        except BaseException:
            self._release()
            raise

    def subscribe(self, topics: Iterable[str]) -> None:
        """Share these topics, in place of those before."""
        wanted = list(topics)
        self._call(lambda: self._share.subscribe(wanted))

    def unsubscribe(self) -> None:
        """Leave the group; what is not acknowledged is released."""
        self._run(self._share.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics."""
        return self._share.subscription

    def poll(self, timeout: float | None = None) -> list[Record]:
        """Up to max.poll.records records; empty when none came within `timeout` seconds (None: wait for some).

        Raises IllegalState while records of the last poll are not acknowledged (explicit mode), CorruptBatch, NotAuthorized
        and other KafkaErrors that time does not mend.
        """
        return self._run(self._share.poll(milliseconds(timeout)))

    def acknowledge(self, record: Record, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Say what becomes of a record of the last poll (explicit mode). Raises IllegalState."""
        self._share.acknowledge(record, kind)

    def commit(self, timeout: float | None = 60.0) -> CommitResults:
        """Tell the brokers what was said of records, and wait: partition -> None, or why not. Raises RequestTimedOut."""
        return self._run(self._share.commit(milliseconds(timeout)))

    def commit_async(self) -> None:
        """Tell the brokers what was said of records; the callback hears the outcome."""
        self._call(self._share.commit_soon)

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Call `callback({partition: offsets}, error)` whenever acknowledgements were answered, in the client's thread."""
        self._share.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records are ours after a poll; None before a broker said."""
        return self._share.lock_ms

    @property
    def member_id(self) -> str:
        """As the group knows this consumer."""
        return self._share.member_id

    def __iter__(self) -> Iterator[Record]:
        """Records, for ever."""
        while True:
            yield from self.poll()

    def close(self, timeout: float | None = 30.0) -> None:
        """Accept what the last poll returned (implicit mode), release the rest, leave the group."""
        if not self._released:
            try:
                self._run(self._share.close(milliseconds(timeout)))
            finally:
                self._release()


def _waits(
    method: Callable[Concatenate[AdminCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """A method of the core as one that waits for it."""

    def waiting(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._admin, *args, **kwargs))

    update_wrapper(waiting, method)
    return waiting


class Admin(Blocking):
    """Everything an administrator asks of a cluster. Timeouts are seconds; default.api.timeout.ms unless given.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("work", num_partitions=3)]).check()

    What is asked of several things at once answers for each: `results["work"]` is what was done, or raises why not.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        super().__init__(config, options)
        self._admin = AdminCore(self._core)

    create_topics = _waits(AdminCore.create_topics)
    delete_topics = _waits(AdminCore.delete_topics)
    list_topics = _waits(AdminCore.list_topics)
    list_offsets = _waits(AdminCore.list_offsets)
    list_groups = _waits(AdminCore.list_groups)
    delete_groups = _waits(AdminCore.delete_groups)
    describe_share_groups = _waits(AdminCore.describe_share_groups)
    list_share_group_offsets = _waits(AdminCore.list_share_group_offsets)
    alter_share_group_offsets = _waits(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = _waits(AdminCore.delete_share_group_offsets)
