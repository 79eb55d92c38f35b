"""A classic group: members, generation, and rebalance state.

                 first member joins              all rejoined, or time is up
    Empty ------------------------> PreparingRebalance ------------------> CompletingRebalance
      ^                               |    ^        ^                          |          |
      +----- no member is left -------+    |        +--- a member changed -----+          | the leader's assignment is
                                           |                                              | in the log
                                           +--------- a member changed ---- Stable <------+

The log holds a snapshot of the group at Empty, at Stable and when a static member is replaced; `replay` applies it. Between two
snapshots the rebalance is in memory only: a restart falls back to the last snapshot, and the members get ILLEGAL_GENERATION or
UNKNOWN_MEMBER_ID, as in Kafka.
"""

from collections import Counter
from enum import Enum
from typing import Final

from ottla.coordinators.groups.classic.embedded import decode_subscription
from ottla.coordinators.groups.classic.member import Member
from ottla.protocol import errors
from ottla.protocol.messages.group_metadata_record import GroupMetadataValue
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.wire import PeerError

CONSUMER: Final = "consumer"


class State(Enum):
    """State of a group; the value is Kafka's name."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """State of a classic group and its members; decisions about requests are in membership.py."""

    __slots__ = (
        "_common_protocols",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_rebalance",
        "initial_remaining_ms",
        "joined_meanwhile",
        "leader",
        "members",
        "pending_members",
        "pending_sync",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp",
        "subscribed_topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.protocol_type: str | None = None
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state_timestamp = -1
        """Start of the logged state, in ms since the epoch; -1 unknown."""
        self.members: dict[str, Member] = {}
        """Members by id, in the order of joining."""
        self.subscribed_topics: frozenset[str] | None = None
        """Topics that the members of a "consumer" group read; None when that is not known."""

        # In memory only.
        self.pending_members: set[str] = set()
        """Member ids that were assigned with MEMBER_ID_REQUIRED and are not used yet."""
        self.pending_sync: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self.initial_rebalance = False
        """The rebalance under way began Empty: it waits for more members rather than for all."""
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.joined_meanwhile = False
        self._common_protocols: set[str] | None = None
        """Protocols that all members support; None if they must be looked for. Every JoinGroup needs them."""

    # Replay.

    def replay(self, value: GroupMetadataValue) -> None:
        """Apply the snapshot of a record. A member that is known, and agrees with the record, keeps its state in memory.

        While loading, a member may be known from an older record that differs: it is built from the newer one.
        """
        known = self.members
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_timestamp = value.current_state_timestamp
        self.members = {}
        self._common_protocols = None
        for stored in value.members:
            member = known.get(stored.member_id)
            if member is None or not member.agrees(stored, value.protocol or ""):
                member = Member.from_record(stored, value.protocol or "")
            member.assignment = stored.assignment
            self.members[stored.member_id] = member
        self.state = State.STABLE if self.members else State.EMPTY
        self.initial_rebalance = False
        self.pending_sync &= self.members.keys()
        self.subscribed_topics = self._subscriptions()

    # Queries.

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time that members have to rejoin, in ms: the longest of their rebalance timeouts."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joining(self) -> int:
        """The number of members with a parked JoinGroup."""
        return sum(1 for member in self.members.values() if member.join is not None)

    @property
    def all_joined(self) -> bool:
        """True if every member has rejoined and every assigned member id has been used."""
        return not self.pending_members and all(member.join is not None for member in self.members.values())

    def static_member(self, instance_id: str) -> Member | None:
        """The member with that group.instance.id (KIP-345)."""
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def check_member(self, member_id: str, instance_id: str | None) -> int:
        """Return UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if the ids are not those of a member; else NONE."""
        if instance_id is not None:
            owner = self.static_member(instance_id)
            if owner is None:
                return errors.UNKNOWN_MEMBER_ID
            if owner.member_id != member_id:
                return errors.FENCED_INSTANCE_ID
        return errors.NONE if member_id in self.members else errors.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Return whether a member with these protocols is compatible with the members of the group."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        return not self._candidates().isdisjoint(names) if self.members else bool(names)

    def _candidates(self) -> set[str]:
        """The protocols that all members support, of which there is at least one."""
        if self._common_protocols is None:
            names = (set(member.protocol_names) for member in self.members.values())
            self._common_protocols = set.intersection(*names)
        return self._common_protocols

    def choose_protocol(self) -> str:
        """The protocol of the next generation: each member votes for its first choice among those that all support."""
        candidates = self._candidates()
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    def is_subscribed(self, topic: str) -> bool:
        """Return whether the members read `topic`; assumed for a consumer group with undecodable subscriptions."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.protocol_type == CONSUMER

    def _subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            member_topics = subscribed_topics(member.metadata(self.protocol))
            if member_topics is None:
                return None
            topics |= member_topics
        return frozenset(topics)

    # Steps of a rebalance, in memory.

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one sets the group's protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        elif self._common_protocols is not None:
            self._common_protocols &= set(member.protocol_names)
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; if it was the leader, the next member becomes the leader."""
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._common_protocols = None
            if self.leader == member_id:
                self.leader = next(iter(self.members), None)
        return member

    def replace(self, old: Member, new_id: str) -> Member:
        """Replace the id of a static member that rejoins; it keeps its other state, its position and the leadership."""
        new = Member(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.session_timeout_ms,
            old.rebalance_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members = {
            new.member_id if member is old else member_id: new if member is old else member
            for member_id, member in self.members.items()
        }
        if self.leader == old.member_id:
            self.leader = new_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new_id)
        return new

    def update(self, member: Member, request: JoinGroupRequest) -> None:
        """Update a member from its new JoinGroup."""
        names = member.protocol_names
        member.update(request)
        if member.protocol_names != names:
            self._common_protocols = None

    def restore_protocols(self, protocols: dict[str, list[tuple[str, bytes]]]) -> None:
        """Set the protocols of all members; the log has only the one chosen of each."""
        for member in self.members.values():
            member.protocols = protocols[member.member_id]
        self._common_protocols = None

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has rejoined; False when no member did."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                self.leader = member.member_id
                return True
        return False

    def begin_generation(self) -> None:
        """Begin the next generation after all members joined: choose the protocol, await the leader's assignment."""
        self.generation += 1
        self.protocol = self.choose_protocol()
        self.subscribed_topics = self._subscriptions()
        self.state = State.COMPLETING_REBALANCE
        self.pending_sync = set(self.members)
        self.initial_rebalance = False


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics of a consumer's subscription; None if `metadata` is not a subscription."""
    try:
        return set(decode_subscription(metadata).topics)
    except PeerError:
        return None
