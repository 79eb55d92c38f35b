"""The share coordinator: the runtime of __share_group_state."""

from collections.abc import Callable
from typing import Any, Final

from ottla.coordinators.runtime import Millis, Result, Runtime, Timer
from ottla.coordinators.share.records import decode_record, tombstone
from ottla.coordinators.share.state import ShareCoordinatorSettings, ShareStates, prune, snapshot_cold
from ottla.coordinators.topology import Topology
from ottla.environment import Clock
from ottla.metadata.configs import BrokerValues
from ottla.metadata.image import SHARE_STATE_TOPIC
from ottla.tasks.queue import CallbackQueue

TOPIC: Final = SHARE_STATE_TOPIC

ShareCoordinator = Runtime[ShareStates]


def share_coordinator(
    values: BrokerValues,
    clock: Clock,
    tasks: CallbackQueue,
    topology: Topology,
    send: Callable[[int, Any], None],
    alarm: Callable[[Millis], None] = lambda deadline: None,  # noqa: ARG005
) -> ShareCoordinator:
    """Return a share coordinator without partitions, which a broker's configs control; `alarm` is that of `Runtime`.

    send  called with (partition, message): Prune for the part of the log that is no longer needed, StateReset for a share
          partition whose state was replaced
    """
    settings = ShareCoordinatorSettings.of(values)
    return Runtime(
        partitions=values.integer("share.coordinator.state.topic.num.partitions"),
        new_state=lambda partition: ShareStates(settings, topology),  # noqa: ARG005
        decode=decode_record,
        loaded=on_loaded,
        clock=clock,
        tasks=tasks,
        alarm=alarm,
        commit_timeout_ms=values.integer("share.coordinator.write.timeout.ms"),
        send=send,
        locate=locate,
    )


def locate(states: ShareStates, offset: int) -> None:
    """Set the offset of the next record to replay."""
    states.offset = offset


def on_loaded(states: ShareStates, now: Millis) -> Result:  # noqa: ARG001
    """Remove topics that were deleted while the partition was not loaded, and start the timers that keep the log short."""
    timers = [
        Timer(snapshot_cold, (), states.settings.cold_snapshot_ms),
        Timer(prune, (), states.settings.prune_ms),
    ]
    gone = [where for where in states.states if not states.hosts(where[1], 0)]
    if not gone:
        return Result(timers=timers)
    return Result([tombstone(where) for where in gone], timers=timers, refused=lambda *_: Result(timers=timers))
