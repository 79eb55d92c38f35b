"""Election of the registry that writes, as Confluent's and Karapace's do: a classic group of type `sr`.

All registries of a topic join the group `schema-registry` with their addresses. The member that leads the group assigns the
same to all: the registry to which changes are sent, the eligible one with the smallest URL.

A group takes a while: the first member waits for others, and one that was killed stays until its session ends. So a registry
that finds no other one in the group writes at once. The NOOP that it begins with takes the right to write from whoever had it
(see `store.py`); what the group elects later only decides who takes it next.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ottla.addresses import address_text
from ottla.client.awaiting import Asynchronous
from ottla.client.coordinator import GROUP, CoordinatorClient
from ottla.client.errors import KafkaError, NotAuthorized
from ottla.net.connection import Link
from ottla.protocol import errors as table
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Response
from ottla.tasks.deferred import Deferred

R = TypeVar("R", bound=Response)
_logger = logging.getLogger("ottla.registry")
_TYPE: Final = "sr"
_PROTOCOL: Final = "v0"
_SESSION_MS: Final = 10_000
_HEARTBEAT_MS: Final = 1_000
_REBALANCE_MS: Final = 60_000
_WAIT_MS: Final = _REBALANCE_MS + 5_000
_LEAVE_S: Final = 2.0
_LEAVE_BY_ID: Final = 3
"""Version of LeaveGroup since which it lists members."""
_FORGOTTEN: Final = frozenset({table.UNKNOWN_MEMBER_ID, table.ILLEGAL_GENERATION})


class Identity(NamedTuple):
    """Address of a registry, and whether it may be elected."""

    scheme: str
    host: str
    port: int
    is_eligible: bool = True

    @property
    def url(self) -> str:
        """Address, which also orders the registries."""
        return f"{self.scheme}://{address_text(self.host, self.port)}"

    def encoded(self) -> bytes:
        """Return the metadata of a member."""
        return _json(self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the JSON object of an address."""
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.is_eligible,
            "scheme": self.scheme,
            "leader": False,
        }


def identity_of(fields: object) -> Identity | None:
    """Return the address in a JSON object, None for something else."""
    if (
        not isinstance(fields, dict)
        or not isinstance(fields.get("host"), str)
        or not isinstance(fields.get("port"), int)
    ):
        return None
    return Identity(
        str(fields.get("scheme") or "http"),
        fields["host"],
        fields["port"],
        fields.get("master_eligibility") is not False,
    )


def json_or_none(data: bytes) -> object:
    """Return a JSON value, None for other bytes."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def elect(members: Mapping[str, bytes]) -> bytes:
    """Return the assignment of all members, by their metadata; two members with one URL are an error."""
    identities = {member: identity_of(json_or_none(metadata)) for member, metadata in members.items()}
    urls = [identity.url for identity in identities.values() if identity is not None]
    eligible = sorted(
        (identity.url, member)
        for member, identity in identities.items()
        if identity is not None and identity.is_eligible
    )
    if len(urls) != len(set(urls)):
        return _json({"version": 1, "error": 1, "master": None, "master_identity": None})
    if not eligible:
        return _json({"version": 1, "error": 0, "master": None, "master_identity": None})
    master = eligible[0][1]
    identity = identities[master]
    assert identity is not None
    return _json({"version": 1, "error": 0, "master": master, "master_identity": identity.fields()})


def leader_of(assignment: bytes) -> Identity | None:
    """Return the registry that an assignment names, None without one."""
    fields = json_or_none(assignment)
    return identity_of(fields.get("master_identity")) if isinstance(fields, dict) else None


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


class Membership(Asynchronous):
    """Membership of a registry in the group.

    on_elected  called with the registry that each assignment names, None without one
    """

    _ends_waits_first = True

    def __init__(
        self,
        client_configs: Mapping[str, object],
        group: str,
        identity: Identity,
        on_elected: Callable[[Identity | None], object],
    ) -> None:
        super().__init__(client_configs, {})
        self._group = group
        self._identity = identity
        self._on_elected = on_elected
        self._member_id = ""
        self._generation = -1
        self._waiting: Link | None = None
        """Connection of a JoinGroup or SyncGroup that waits for the other members."""
        self._coordinator = CoordinatorClient(self._core.metadata, GROUP, group)

    async def leader(self) -> Identity | None:
        """Return the registry that the group has elected, None if it has no members. Raises KafkaError."""
        return await self._run(self._ask_group())

    async def run(self) -> None:
        """Be a member until this is cancelled. Raises NotAuthorized."""
        await self._run(self._stay())

    async def leave(self) -> None:
        """Leave the group, so that another member is elected at once, and close the connections."""
        if self._waiting is not None:
            self._waiting.close()  # the answers of a connection are in order: LeaveGroup would wait for the others as well
        try:
            async with asyncio.timeout(_LEAVE_S):
                if self._member_id:
                    await self._run(self._send_leave())
        except (KafkaError, TimeoutError) as failed:
            _logger.debug("the member of the registry stays until its session ends: %s", failed)
        finally:
            await self.close()

    async def _ask_group(self) -> Identity | None:
        answer = await self._coordinator.request(DescribeGroupsRequest(groups=[self._group]))
        row = answer.groups[0]
        self._coordinator.note(row.error_code)
        assignments: Iterable[bytes] = (member.member_assignment for member in row.members)
        return next((identity for identity in map(leader_of, assignments) if identity is not None), None)

    async def _stay(self) -> None:
        failures = 0
        while True:
            try:
                joined = await self._join()
                is_leader = joined.leader == joined.member_id and not joined.skip_assignment
                members = {member.member_id: member.metadata for member in joined.members} if is_leader else {}
                assignment = await self._sync(joined, dict.fromkeys(members, elect(members)))
                self._on_elected(leader_of(assignment))
                failures = 0
                while True:
                    await self._core.scheduler.sleep(_HEARTBEAT_MS)
                    await self._heartbeat()
            except NotAuthorized:
                raise
            except KafkaError as error:
                self._waiting = None
                if error.code == table.REBALANCE_IN_PROGRESS:
                    continue
                if error.code in _FORGOTTEN:
                    self._member_id, self._generation = "", -1
                failures += 1
                await self._core.scheduler.sleep(self._core.metadata.backoff_ms(failures))

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            protocol_type=_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=self._identity.encoded())],
        )
        for _ in range(2):
            request.member_id = self._member_id
            link = await self._coordinator.link()
            version = link.version(JoinGroupRequest)
            answer = await self._answer(link, link.request(request, version, timeout_ms=_WAIT_MS))
            if answer.error_code != table.MEMBER_ID_REQUIRED:
                break
            self._member_id = answer.member_id
        self._raise_error(answer.error_code, "join")
        self._member_id, self._generation = answer.member_id, answer.generation_id
        return answer

    async def _sync(self, joined: JoinGroupResponse, assignments: Mapping[str, bytes]) -> bytes:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        link = await self._coordinator.link()
        promise = link.request(request, link.version(SyncGroupRequest), timeout_ms=_WAIT_MS)
        answer = await self._answer(link, promise)
        self._raise_error(answer.error_code, "sync")
        return bytes(answer.assignment)

    async def _answer(self, link: Link, promise: Deferred[R]) -> R:
        """Wait for an answer that comes when all members have sent their requests."""
        self._waiting = link
        answer = await self._coordinator.response(promise)
        self._waiting = None
        return answer

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        self._raise_error((await self._coordinator.request(request)).error_code, "heartbeat")

    async def _send_leave(self) -> None:
        link = await self._coordinator.link()
        version = link.version(LeaveGroupRequest)
        request = LeaveGroupRequest(group_id=self._group)
        if version >= _LEAVE_BY_ID:
            request.members = [MemberIdentity(member_id=self._member_id)]
        else:
            request.member_id = self._member_id
        await self._coordinator.response(link.request(request, version))

    def _raise_error(self, code: int, about: str) -> None:
        self._coordinator.check(code, f"{about} in group {self._group}")
