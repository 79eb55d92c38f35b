"""The group coordinator: the runtime of __consumer_offsets."""
# ruff: noqa: ARG001, ARG005 - `now` is part of the signature

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.coordinators.groups.classic.membership import after_loading
from ottla.coordinators.groups.consumer import timers as consumer_timers
from ottla.coordinators.groups.offset_commits import replay_run
from ottla.coordinators.groups.records import decode_record
from ottla.coordinators.groups.share import heartbeat as share_heartbeat
from ottla.coordinators.groups.state import Groups, GroupSettings
from ottla.coordinators.groups.streams import timers as streams_timers
from ottla.coordinators.groups.streams.assignors import Assign
from ottla.coordinators.offsets import expire_offsets
from ottla.coordinators.runtime import Millis, Result, Runtime, Timer
from ottla.coordinators.topology import Topology
from ottla.environment import Clock, Random
from ottla.metadata.configs import BrokerValues
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.tasks.queue import CallbackQueue

TOPIC: Final = OFFSETS_TOPIC

GroupCoordinator = Runtime[Groups]


def group_coordinator(
    values: BrokerValues,
    clock: Clock,
    tasks: CallbackQueue,
    random: Random,
    topology: Topology,
    alarm: Callable[[Millis], None] = lambda deadline: None,
    send: Callable[[int, Any], None] = lambda partition, message: None,
    task_assignors: Mapping[str, Assign | None] | None = None,
) -> GroupCoordinator:
    """Return a group coordinator without partitions, which a broker's configs control; `alarm` is that of `Runtime`.

    cluster  the metadata, which the caller keeps up to date
    send     called with (partition, InitializeShares) for partitions that the share coordinator must initialise; the
             caller of the share coordinator then runs `share_heartbeat.finish_initialization`
    task_assignors  assignors of streams groups by name, the first one is the default, None is "sticky"
    """
    settings = GroupSettings.of(values)
    if task_assignors is not None:
        settings = settings._replace(streams=settings.streams._replace(assignors=task_assignors))
    return Runtime(
        partitions=values.integer("offsets.topic.num.partitions"),
        new_state=lambda partition: Groups(settings, random, topology),
        decode=decode_record,
        loaded=on_loaded,
        clock=clock,
        tasks=tasks,
        alarm=alarm,
        commit_timeout_ms=values.integer("offsets.commit.timeout.ms"),
        send=send,
        replay_run=replay_run,
    )


def on_loaded(groups: Groups, now: Millis) -> Result:
    """Start a new session for every member of a loaded partition, and the expiry of offsets."""
    # Replayed rebalances are not counted as this broker's.
    groups.rebalances = dict.fromkeys(groups.rebalances, 0)
    timers = [Timer(expire_offsets, (), groups.settings.offsets_retention_check_ms)]
    for group in groups.groups.values():
        timers += after_loading(group, groups.settings)
    for consumer_group in groups.consumer_groups.values():
        consumer_group.is_stale = True
        timers += consumer_timers.after_loading(groups, consumer_group)
    for share_group in groups.share_groups.values():
        timers += share_heartbeat.after_loading(groups, share_group)
    for streams_group in groups.streams_groups.values():
        streams_group.is_stale = True
        timers += streams_timers.after_loading(groups, streams_group)
    return Result(timers=timers)
