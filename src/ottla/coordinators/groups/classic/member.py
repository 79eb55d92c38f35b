"""A member of a classic group."""

from ottla.protocol.messages.group_metadata_record import MemberMetadata
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest


class Member:
    """One member: its logged state, and its state in memory only.

    protocols   (name, metadata) in the member's order of preference; a member loaded from the log has only the one chosen
    assignment  assigned by the leader in this generation
    join, sync  its parked request, while it waits for the others or for the leader
    is_new      True until its first rebalance completes: its session can expire although its JoinGroup is parked
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: list[tuple[str, bytes]],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join: JoinGroupRequest | None = None
        self.sync: SyncGroupRequest | None = None
        self.is_new = False

    @classmethod
    def joining(cls, member_id: str, request: JoinGroupRequest) -> "Member":
        """Return a new member as its JoinGroup describes it. In version 0 the rebalance timeout is the session timeout."""
        return cls(
            member_id,
            request.group_instance_id,
            request.context.client_id or "",
            request.context.client_host,
            request.session_timeout_ms,
            rebalance_timeout(request),
            protocols_of(request),
        )

    @classmethod
    def from_record(cls, record: MemberMetadata, protocol: str) -> "Member":
        """Return the member of a logged record."""
        timeout = record.rebalance_timeout if record.rebalance_timeout >= 0 else record.session_timeout
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout,
            timeout,
            [(protocol, record.subscription)],
            record.assignment,
        )

    def agrees(self, record: MemberMetadata, protocol: str) -> bool:
        """Return whether the logged member equals the one in memory."""
        return (protocol, record.subscription) in self.protocols and (
            (self.session_timeout_ms, self.rebalance_timeout_ms) == (record.session_timeout, record.rebalance_timeout)
        )

    @property
    def protocol_names(self) -> list[str]:
        """Names of the protocols in the member's order of preference."""
        return [name for name, _ in self.protocols]

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for `protocol`; empty when it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's first protocol among `candidates`, the protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def update(self, request: JoinGroupRequest) -> None:
        """Update the member from its new JoinGroup."""
        self.protocols = protocols_of(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout(request)

    @property
    def is_waiting(self) -> bool:
        """True if a request of the member is parked, so that its session need not be renewed."""
        return not self.is_new and (self.join is not None or self.sync is not None)


def protocols_of(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    """The protocols of a JoinGroup in order of preference."""
    return [(protocol.name, protocol.metadata) for protocol in request.protocols]


def rebalance_timeout(request: JoinGroupRequest) -> int:
    """Time that the member has to rejoin, in ms."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
