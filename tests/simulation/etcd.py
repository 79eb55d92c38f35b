"""A simulated etcd: the JSON gateway over an in-memory transport, on the data of `SharedMetadata`.

The real client of etcd runs against it on virtual time: endpoints, fail-over, pages, the watch, leases and the login. A member
can be killed, stopped, slow, or without a leader.

    SimulatedNetwork (Transport) ---> _Connection (HTTP/1.1) ---> SimulatedMember.serve ---> SharedMetadata
"""

import json
import random
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import h11

from ottla.environment import Address, Receiver, Timers
from ottla.metadata.store import Change, Entry, Snapshot
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata, _Lease

Json = dict[str, Any]
_ENDED: Final = _Lease(10_000, 0)
_LATIN: Final = "utf-8", "surrogateescape"


class EtcdRefusal(Exception):
    """Error in an answer of etcd."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def text(data: str) -> str:
    return b64decode(data).decode(*_LATIN)


def encoded(data: str) -> str:
    return b64encode(data.encode(*_LATIN)).decode()


def kv(entry: Entry) -> Json:
    """Return a key as etcd does: without fields that are zero or empty."""
    fields = {
        "key": encoded(entry.key),
        "create_revision": entry.created and str(entry.created),
        "mod_revision": str(entry.revision),
        "value": b64encode(entry.value or b"").decode(),
        "lease": entry.lease and str(entry.lease),
    }
    return {name: value for name, value in fields.items() if value}


class SimulatedEtcd:
    """The data of the cluster, and what all members share.

    users  user -> password; empty: the login is not enabled
    """

    def __init__(self, timers: Timers, shared: SharedMetadata, dice: random.Random) -> None:
        self.timers = timers
        self.shared = shared
        self.dice = dice
        self.cluster_id = 0xABCDEF0123456789
        self.users: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.has_leader = True
        self.lag = 0
        """Revisions by which answers lag behind that no quorum gives: of renewals and opened watches."""
        self.requests: list[tuple[Address, str]] = []
        """Address and path of each request that was received."""
        self._pages: dict[int, Snapshot] = {}

    def compact(self) -> None:
        self.shared.compact()
        self._pages.clear()

    def freeze(self) -> None:
        """Take the leader away."""
        self.has_leader = False
        self.shared.freeze()

    def thaw(self) -> None:
        self.has_leader = True
        self.shared.thaw()

    def restore(self, taken: Snapshot, *, bump: int = 0) -> None:
        """Begin with the contents of a snapshot, with a higher revision if `bump` is set; the history is empty, and leases have
        their whole time again.
        """
        newest, kept = self.shared, {entry.lease for entry in taken.entries if entry.lease}
        self.shared = shared = SharedMetadata(newest._clock, self.timers)
        shared._leases = {lease: newest._leases.get(lease, _ENDED) for lease in kept}
        shared._newest_lease = newest._newest_lease
        for lease in sorted(kept):
            shared.renew(lease)
        shared._entries = {entry.key: entry for entry in taken.entries}
        shared.revision = shared._compacted = taken.revision + bump
        self._pages.clear()

    def restore_shared(self, shared: SharedMetadata) -> None:
        """Go on with other contents and their history."""
        self.shared = shared
        self._pages.clear()

    def header(self, lag: int = 0) -> Json:
        return {"cluster_id": str(self.cluster_id), "member_id": "1", "revision": str(self.shared.revision - lag)}

    def answer(self, path: str, request: Json) -> Json:
        """Carry out a request."""
        if path == "/v3/kv/txn":
            return self._transaction(request)
        if path == "/v3/kv/range":
            return self._range(request)
        if path == "/v3/lease/grant":
            granted = self.shared.grant(int(request["TTL"]) * 1000)
            return {"header": self.header(), "ID": str(granted.id), "TTL": request["TTL"]}
        lease = int(request["ID"])
        renewed = self.shared.renew(lease).id
        if path == "/v3/lease/keepalive":
            ttl = {"TTL": "10"} if renewed else {}
            return {"result": {"header": self.header(self.lag), "ID": str(lease), **ttl}}
        if not renewed:
            raise EtcdRefusal(5, "etcdserver: requested lease not found")
        self.shared.revoke(lease)
        return {"header": self.header()}

    def _entries(self, snapshot: Snapshot, request: Json) -> list[Entry]:
        key = text(request["key"])
        end = b64decode(request.get("range_end", ""))
        if not end:
            return [entry for entry in snapshot.entries if entry.key == key]
        first = b64decode(request["key"])
        return [entry for entry in snapshot.entries if first <= entry.key.encode(*_LATIN) < end]

    def _range(self, request: Json) -> Json:
        revision = int(request.get("revision", 0))
        if not revision:
            revision = self.shared.revision
            self._pages[revision] = self.shared.snapshot()
        elif revision not in self._pages:
            raise EtcdRefusal(11, "etcdserver: mvcc: required revision has been compacted")
        entries = self._entries(self._pages[revision], request)
        limit = int(request.get("limit", 0)) or len(entries)
        answer = {"header": self.header(), "kvs": [kv(entry) for entry in entries[:limit]]}
        return {**answer, "more": True} if len(entries) > limit else answer

    def _transaction(self, request: Json) -> Json:
        targets: dict[str, dict[str, int]] = {"MOD": {}, "CREATE": {}}
        for compare in request.get("compare", ()):
            revision = compare["mod_revision" if compare["target"] == "MOD" else "create_revision"]
            targets[compare["target"]][text(compare["key"])] = int(revision)
        snapshot = self.shared.snapshot()
        put: dict[str, bytes] = {}
        delete: list[str] = []
        lease = 0
        responses: list[Json] = []
        for operation in request.get("success", ()):
            ((kind, fields),) = operation.items()
            if kind == "request_put":
                put[text(fields["key"])] = b64decode(fields.get("value", ""))
                lease = int(fields.get("lease", 0))
                responses.append({"response_put": {}})
            else:
                ending = [entry.key for entry in self._entries(snapshot, fields)]
                delete += ending
                responses.append({"response_delete_range": {"deleted": str(len(ending))} if ending else {}})
        change = Change(targets["MOD"], targets["CREATE"], put, list(dict.fromkeys(delete)), (), lease)
        compared = Change(targets["MOD"], targets["CREATE"])
        if put or delete:
            outcome = self.shared.change(change)
        else:  # no revision of its own: compare only, with a change that cannot succeed
            outcome = self.shared.change(compared._replace(put={"": b""}, lease=1 << 40))
        if outcome.conflicts:
            reads = [
                {"kvs": kvs} if (kvs := self._read(snapshot, operation)) else {} for operation in request["failure"]
            ]
            return {"header": self.header(), "responses": [{"response_range": read} for read in reads]}
        if outcome.error is not None and (put or delete):
            raise EtcdRefusal(5, "etcdserver: requested lease not found")
        return {"header": self.header(), "succeeded": True, "responses": responses}

    def _read(self, snapshot: Snapshot, operation: Json) -> list[Json]:
        return [kv(entry) for entry in self._entries(snapshot, operation["request_range"])]


class SimulatedMember:
    """One endpoint of the cluster.

    delay_ms  time that its deliveries to a watch take
    """

    def __init__(self, etcd: SimulatedEtcd, address: Address) -> None:
        self.etcd = etcd
        self.address = address
        self.delay_ms = 0
        self.is_killed = False
        self.connections: list[_Connection] = []
        self._paused: list[Callable[[], None]] | None = None

    def kill(self) -> None:
        """End all connections; new ones are refused."""
        self.is_killed = True
        self.resume()
        for connection in list(self.connections):
            connection.break_off()

    def restart(self) -> None:
        self.is_killed = False

    def pause(self) -> None:
        """Stop answering; what arrives waits for `resume`."""
        if self._paused is None and not self.is_killed:
            self._paused = []

    def resume(self) -> None:
        waiting, self._paused = self._paused or [], None
        for run in waiting:
            run()

    def run(self, work: Callable[[], None]) -> None:
        """Run the next work of this member, at `resume` if it is paused."""
        if self._paused is None:
            work()
        else:
            self._paused.append(work)

    def serve(self, connection: "_Connection", path: str, headers: dict[str, str], body: bytes) -> None:
        """Answer one request on its connection."""
        etcd = self.etcd
        etcd.requests.append((self.address, path))
        if path == "/version":
            connection.respond(200, {"etcdserver": "3.5.0", "etcdcluster": "3.5.0"})
            return
        request = json.loads(body)
        try:
            if path == "/v3/auth/authenticate":
                connection.respond(200, self._log_in(request))
                return
            if etcd.users and headers.get("authorization") not in etcd.tokens:
                raise EtcdRefusal(16, "etcdserver: invalid auth token")
            if not etcd.has_leader and "grpc-metadata-hasleader" in headers:
                raise EtcdRefusal(14, "etcdserver: no leader")
            if path == "/v3/watch":
                _WatchStream(self, connection, request["create_request"])
            else:
                etcd.shared.submit(partial(self._answer, connection, path, request))
        except EtcdRefusal as refusal:
            connection.refuse(refusal)

    def _answer(self, connection: "_Connection", path: str, request: Json) -> None:
        try:
            connection.respond(200, self.etcd.answer(path, request))
        except EtcdRefusal as refusal:
            connection.refuse(refusal)

    def _log_in(self, request: Json) -> Json:
        if self.etcd.users.get(request["name"]) != request["password"]:
            raise EtcdRefusal(3, "etcdserver: authentication failed, invalid user ID or password")
        token = f"token.{self.etcd.dice.randrange(1 << 30)}"
        self.etcd.tokens.add(token)
        return {"header": self.etcd.header(), "token": token}


class _WatchStream:
    """Answer of a watch: a watcher of the shared metadata that writes events."""

    def __init__(self, member: SimulatedMember, connection: "_Connection", request: Json) -> None:
        self._member = member
        self._connection = connection
        self._prefix = text(request["key"])
        assert request["fragment"] is True
        connection.begin_stream()
        self._send(created=True)
        self._store: MemoryMetadataStore = member.etcd.shared.connect(latency=lambda: member.delay_ms)
        connection.watch = self._store
        self._store.watch(int(request["start_revision"]) - 1, self)

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        events = [
            {"type": "DELETE", "kv": kv(entry)} if entry.value is None else {"kv": kv(entry)}
            for entry in entries
            if entry.key.startswith(self._prefix)
        ]
        while len(events) > 1 and self._member.etcd.dice.random() < 0.3:
            self._send(events=[events.pop(0)], fragment=True)
        if events:
            self._send(events=events)

    def reloaded(self, snapshot: Snapshot) -> None:
        self._store.close()
        self._send(canceled=True, compact_revision=str(snapshot.revision))

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)

    def _send(self, **fields: Any) -> None:
        etcd = self._member.etcd
        message = {"result": {"header": etcd.header(etcd.lag if "created" in fields else 0), **fields}}
        self._member.run(partial(self._connection.stream, message))


class _Connection:
    """A connection between a client and a member: the client's `Stream`, and the member's side of HTTP."""

    def __init__(self, network: "SimulatedNetwork", member: SimulatedMember, receiver: Receiver) -> None:
        self.watch: MemoryMetadataStore | None = None
        self._network = network
        self._member = member
        self._receiver = receiver
        self._http = h11.Connection(h11.SERVER)
        self._request: h11.Request | None = None
        self._body = b""
        self._is_open = True
        self._unread: deque[bytes] = deque()
        member.connections.append(self)

    # The client's side.

    def write(self, pieces: Sequence[Any]) -> None:
        data = b"".join(bytes(piece) for piece in pieces)
        self._network.send(self, partial(self._member.run, partial(self._receive, data)), to_client=False)

    def close(self) -> None:
        self._end()

    # The member's side.

    def break_off(self) -> None:
        if self._is_open:
            self._end()
            self._network.send(self, partial(self._receiver.lost, "Connection reset by peer"), to_client=True)

    def _end(self) -> None:
        self._is_open = False
        if self in self._member.connections:
            self._member.connections.remove(self)
        if self.watch is not None:
            self.watch.close()

    def _receive(self, data: bytes) -> None:
        if not self._is_open:
            return
        self._http.receive_data(data)
        while (event := self._http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                self._request, self._body = event, b""
            elif isinstance(event, h11.Data):
                self._body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert self._request is not None
                headers = {name.decode().lower(): value.decode() for name, value in self._request.headers}
                self._member.serve(self, self._request.target.decode(), headers, self._body)

    def refuse(self, refusal: EtcdRefusal) -> None:
        self.respond(500, {"error": str(refusal), "message": str(refusal), "code": refusal.code})

    def respond(self, status: int, body: Json) -> None:
        if not self._is_open:
            return
        data = json.dumps(body).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
        head = self._http.send(h11.Response(status_code=status, headers=headers))
        self._pass(head + self._http.send(h11.Data(data=data)) + self._http.send(h11.EndOfMessage()))
        self._http.start_next_cycle()

    def begin_stream(self) -> None:
        headers = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
        self._pass(self._http.send(h11.Response(status_code=200, headers=headers)))

    def stream(self, message: Json) -> None:
        if self._is_open:
            self._pass(self._http.send(h11.Data(data=json.dumps(message).encode() + b"\n")))

    def _pass(self, data: bytes | None) -> None:
        """Send bytes to the client, in pieces of random size."""
        assert data is not None
        dice = self._member.etcd.dice
        while data:
            size = len(data) if dice.random() < 0.7 else dice.randrange(len(data)) + 1
            piece, data = data[:size], data[size:]
            self._network.send(self, partial(self._arrive, piece), to_client=True)

    def _arrive(self, piece: bytes) -> None:
        if self._is_open:
            self._unread.append(piece)
            while self._unread and self._is_open:
                self._receiver.readable(self._read_into)

    def _read_into(self, room: Any) -> int:
        if not self._unread:
            raise BlockingIOError
        piece = self._unread.popleft()
        if len(piece) > len(room):
            self._unread.appendleft(piece[len(room) :])
            piece = piece[: len(room)]
        memoryview(room)[: len(piece)] = piece
        return len(piece)


class SimulatedNetwork:
    """A `Transport` to simulated members.

    latency        returns the milliseconds of the next message
    client_timers  timers of the client, if it does not share those of the members: what arrives there runs on them
    is_cut         True while nothing arrives in either direction: messages wait, and connections are not established
    """

    def __init__(
        self, timers: Timers, latency: Callable[[], int] = lambda: 0, client_timers: Timers | None = None
    ) -> None:
        self.members: dict[Address, SimulatedMember] = {}
        self.is_cut = False
        self._timers = timers
        self._client_timers = client_timers or timers
        self._latency = latency
        self._messages: dict[tuple[_Connection, bool], deque[Callable[[], None]]] = {}
        self._connections: dict[_Connection, None] = {}
        self._held: list[tuple[_Connection, bool]] = []

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        member = self.members.get(address)

        def connect() -> None:
            if member is None or member.is_killed:
                receiver.lost("Connection refused")
            elif not self.is_cut:  # otherwise the client gives up
                connection = _Connection(self, member, receiver)
                self._connections[connection] = None
                receiver.connected(connection)

        return self._client_timers.call_later(self._latency(), connect).cancel

    def send(self, connection: _Connection, arrive: Callable[[], None], *, to_client: bool) -> None:
        """Deliver a message; those of one direction arrive in order, and a faster one takes earlier ones along."""
        direction = connection, to_client
        self._messages.setdefault(direction, deque()).append(arrive)
        if self.is_cut:
            self._held.append(direction)
        else:
            self._schedule(direction)

    def _schedule(self, direction: tuple[_Connection, bool]) -> None:
        timers = self._client_timers if direction[1] else self._timers
        timers.call_later(self._latency(), lambda: self._messages[direction].popleft()())

    def heal(self) -> None:
        """End a cut; what was held back arrives."""
        self.is_cut = False
        held, self._held = self._held, []
        for direction in held:
            self._schedule(direction)

    def end_client(self) -> None:
        """Close all connections of a client whose process has ended."""
        for connection in list(self._connections):
            connection.close()
        self._connections.clear()
