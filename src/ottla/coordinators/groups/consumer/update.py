"""Update of a consumer group for one member that joins or changes, in four steps:

    1 enrol       identify the member: a new one, a known one, or a static one that replaces another
    2 describe    apply its description; a change of the subscription, or of the topics in it, begins a new group epoch
    3 retarget    compute targets for a new group epoch, not more often than group.consumer.assignment.interval.ms
    4 reconcile   move the member towards its target

The update changes no state: it collects records, which replay applies once they are in the log. Both protocols use this module;
their requests and responses are in heartbeat.py and migration/classic_members.py.
"""

from collections.abc import Collection

from ottla.coordinators.groups.consumer.assignors import ASSIGNORS, Subscriber
from ottla.coordinators.groups.consumer.group import ConsumerGroup, subscriptions
from ottla.coordinators.groups.consumer.member import (
    ConsumerMember,
    Description,
    MemberState,
    Target,
)
from ottla.coordinators.groups.consumer.reconciliation import Goal, Reported, next_step
from ottla.coordinators.groups.consumer.records import (
    group_epoch,
    member_current,
    member_description,
    member_target,
    member_tombstones,
    regex_tombstone,
    target_epoch,
)
from ottla.coordinators.groups.consumer.regexes import check_regex
from ottla.coordinators.groups.consumer.subscriptions import refresh_is_due, subscribed_ids
from ottla.coordinators.groups.consumer.timers import end_revocation, refresh_regexes
from ottla.coordinators.groups.heartbeat_interval import interval_ms, settling_ms, tenth_ms
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis, Timer
from ottla.metadata.refusal import Refused
from ottla.protocol import errors
from ottla.protocol.context import RequestContext
from ottla.regexes import InvalidRegex


class Update:
    """Update of a member under construction.

    group        the group before the update, or as converted from a classic one
    before       the member before the update; a blank one if it is new
    description  the member's description after the update
    current      the member's current assignment; `reconcile` replaces it
    records      records to append
    timers       timers to set after the append
    """

    __slots__ = (
        "before",
        "context",
        "current",
        "description",
        "epoch",
        "group",
        "groups",
        "member_id",
        "now",
        "records",
        "replaced",
        "resubscribed",
        "target",
        "target_epoch",
        "timers",
    )

    def __init__(self, groups: Groups, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        self.groups = groups
        self.group = group
        self.member_id = member_id
        self.now = now
        self.context: RequestContext | None = None
        self.replaced: str | None = None
        self.before = group.members.get(member_id) or ConsumerMember(member_id)
        self.description = self.before.description
        self.current = self.before.current
        self.epoch = group.epoch
        self.target: Target = {}
        self.target_epoch = group.target_epoch
        self.resubscribed = False
        self.records: list[CoordinatorRecord] = []
        self.timers: list[Timer] = []

    # 1

    def take_over(self, old: ConsumerMember) -> None:
        """Take over the state, except for epochs, of a static member that rejoins under another member id."""
        group_id = self.group.group_id
        self.replaced = old.member_id
        self.before = ConsumerMember(self.member_id)
        self.before.description = self.description = old.description
        self.before.current = self.current = old.current._replace(epoch=0, previous_epoch=0)
        self.records += member_tombstones(group_id, old.member_id)
        self.records.append(member_description(group_id, self.member_id, old.description))
        self.records.append(
            member_target(group_id, self.member_id, self.group.target_of(old.member_id, old.description.instance_id))
        )
        self.records.append(member_current(group_id, self.member_id, self.current))

    def _members(self) -> dict[str, Description]:
        """Return the descriptions of all members, with the updated one of this member."""
        subscribers = {
            member_id: member.description
            for member_id, member in self.group.members.items()
            if member_id != self.replaced
        }
        subscribers[self.member_id] = self.description
        return subscribers

    # 2

    def describe(self, description: Description) -> None:
        """Apply the member's description. Raises Refused (INVALID_REGULAR_EXPRESSION)."""
        group, old = self.group, self.before.description
        self.description = description
        if description == old and not group.is_stale:
            self._refresh(group.regexes)
            return
        if description != old:
            self.records.append(member_description(group.group_id, self.member_id, description))
        renamed = description.topics != old.topics
        regex_changed, regex_known = self._follow_regex(old.regex, description.regex)
        members = self._members()
        default = self.groups.settings.consumer.assignors[0]
        before = {member_id: member.description for member_id, member in group.members.items()}
        reassigned = group.preferred_assignor(default, members) != group.preferred_assignor(default, before)
        self.resubscribed = renamed or regex_changed
        begins = renamed or regex_known or reassigned
        if not begins and not group.is_stale:
            return
        resolved = group.resolved
        hash_now = self.groups.topology.metadata_hash(set(subscriptions(members, resolved)))
        if begins or hash_now != group.metadata_hash:
            self.epoch += 1
            self.records.append(group_epoch(group.group_id, self.epoch, hash_now))
        else:
            group.is_stale = False

    def _follow_regex(self, old: str, new: str) -> tuple[bool, bool]:
        """Return whether the member's regular expression changed, and whether its topics are resolved.

        A new expression is only checked here; a timer resolves its topics shortly after, which begins a new epoch.
        """
        group = self.group
        if old != new:
            if old and group.regexes.get(old) == 1:
                self.records.append(regex_tombstone(group.group_id, old))
            if new and new not in group.regexes:
                try:
                    check_regex(new)
                except InvalidRegex as cause:
                    raise Refused(
                        errors.INVALID_REGULAR_EXPRESSION,
                        f"SubscribedTopicRegex `{new}` is not a valid regular expression: {cause}.",
                    ) from None
        self._refresh({member.regex for member in self._members().values() if member.regex})
        if old == new:
            return False, False
        return True, new in group.resolved or not new

    def _refresh(self, regexes: Collection[str]) -> None:
        """Set the timer that resolves the regular expressions, if a refresh is due."""
        if refresh_is_due(self.group, regexes, self.groups, self.now):
            self.timers.append(Timer(refresh_regexes, (self.group.group_id, self.context), 0))

    # 3

    def retarget(self) -> None:
        """Compute the targets of a new epoch, unless the interval since the last computation is still running.

        In that case the old targets stay in force, and a later heartbeat computes the new ones (KIP-1263).
        """
        group, groups = self.group, self.groups
        self.target = group.target_of(self.member_id, self.description.instance_id)
        if self.epoch <= group.target_epoch or groups.until_assignment_ms(group, self.now):
            return
        members = self._members()
        default = groups.settings.consumer.assignors[0]
        assignor = ASSIGNORS[group.preferred_assignor(default, members)]
        old = {
            member_id: group.target_of(member_id, description.instance_id) for member_id, description in members.items()
        }
        ids = subscribed_ids(members, group.resolved, groups.topology)
        sizes = {
            topic_id: len(groups.topology.image.topics_by_id[topic_id].partitions)
            for topic_id in frozenset().union(*ids.values())
        }
        new = assignor(
            {
                member_id: Subscriber(ids[member_id], old[member_id], description.instance_id)
                for member_id, description in members.items()
            },
            sizes,
        )
        logged = group.targets
        for member_id in members:
            target = new.get(member_id, {})
            inherits = self.replaced is not None and member_id == self.member_id
            if target != old[member_id] or not (inherits or member_id in logged):
                self.records.append(member_target(group.group_id, member_id, target))
        self.records.append(target_epoch(group.group_id, self.epoch, self.now))
        self.target, self.target_epoch = new.get(self.member_id, {}), self.epoch

    # 4

    def reconcile(self, owned: Reported | None) -> None:
        """Move the member towards its target; `owned` are the partitions it reports. Raises Refused (FENCED_MEMBER_EPOCH)."""
        group_id, member_id = self.group.group_id, self.member_id
        settled = self.current.state is MemberState.STABLE and self.current.epoch == self.target_epoch
        if settled and not self.resubscribed:
            return
        topics = subscribed_ids({member_id: self.description}, self.group.resolved, self.groups.topology)[member_id]
        owners = self.group.owners
        if self.replaced is not None:  # the new member owns the partitions of the old one
            owners = {
                topic_id: {
                    partition: member_id if owner == self.replaced else owner for partition, owner in parts.items()
                }
                for topic_id, parts in owners.items()
            }
        goal = Goal(member_id, self.target_epoch, self.target, topics, owners)
        step = next_step(self.current, goal, owned, resubscribed=self.resubscribed)
        if step == self.current:
            return
        self.current = step
        self.records.append(member_current(group_id, member_id, step))
        if self.description.classic is None:  # classic members have a rejoin timeout instead
            waits = step.state is MemberState.UNREVOKED_PARTITIONS
            timeout_ms = self.description.rebalance_timeout_ms if waits else None
            self.timers.append(Timer(end_revocation, (group_id, member_id), timeout_ms))

    def heartbeat_interval_ms(self) -> int:
        """Return the time until the member's next heartbeat."""
        group, config_ms = self.group, self.groups.heartbeat_interval_ms(self.group.group_id)
        if self.epoch > self.target_epoch:
            wait_ms: int | None = self.groups.until_assignment_ms(group, self.now)
        elif self.current.state is MemberState.UNRELEASED_PARTITIONS or (
            self.description.regex and self.description.regex not in group.resolved
        ):
            wait_ms = tenth_ms(config_ms)
        else:
            timestamp = self.now if self.target_epoch > group.target_epoch else group.target_timestamp
            wait_ms = settling_ms(config_ms, timestamp, self.now)
        return interval_ms(config_ms, wait_ms)
