"""Requests and responses of etcd's JSON gateway.

Keys and values are base64, integers are text, and a field that is zero, empty or false is absent. No other file of this package
knows field names of etcd.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.metadata.store import Change, ChangeOutcome, Entry

Json: TypeAlias = dict[str, Any]
TXN: Final = "/v3/kv/txn"
RANGE: Final = "/v3/kv/range"
WATCH: Final = "/v3/watch"
GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
REVOKE: Final = "/v3/lease/revoke"
AUTHENTICATE: Final = "/v3/auth/authenticate"
MOST_OPERATIONS: Final = 128
"""Operations that etcd accepts in a transaction (--max-txn-ops); comparisons, puts with deletions, and reads count apart."""
MOST_BYTES: Final = 1_500_000
"""Size of a transaction that etcd accepts (--max-request-bytes, 1.5 MiB), with room for its encoding."""
_ENCODING: Final = "utf-8", "surrogateescape"


class Header(NamedTuple):
    """Header of a response; the revision is 0 in some."""

    cluster_id: int
    revision: int


class Keys:
    """Encoding of keys under the prefix of a cluster."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode(*_ENCODING)

    def key(self, key: str) -> str:
        """Encode a key."""
        if not key.startswith("/"):
            raise ValueError(f"the key {key} does not begin with a slash")
        return _base64(self._prefix + key.encode(*_ENCODING))

    def under(self, prefix: str, after: str | None = None) -> Json:
        """Encode the range of all keys with a prefix, from the one that follows the key `after`."""
        first = self._prefix + (prefix or "/").encode(*_ENCODING)
        end = first[:-1] + bytes([first[-1] + 1])  # UTF-8 has no byte 0xff
        if after is not None:
            first = self._prefix + after.encode(*_ENCODING) + b"\0"
        return {"key": _base64(first), "range_end": _base64(end)}

    def entry(self, kv: Json) -> Entry:
        """Decode a key and its value; a deleted key has no creation revision."""
        key = b64decode(kv["key"])[len(self._prefix) :].decode(*_ENCODING)
        created, revision = int(kv.get("create_revision", 0)), int(kv.get("mod_revision", 0))
        if not created:
            return Entry(key, None, revision, 0)
        return Entry(key, b64decode(kv.get("value", "")), revision, created, int(kv.get("lease", 0)))


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def header(response: Json) -> Header:
    """Return the header of a response."""
    fields = response.get("header", {})
    return Header(int(fields.get("cluster_id", 0)), int(fields.get("revision", 0)))


# -- transactions --


def excess(change: Change) -> str | None:
    """Return the reason in one line why etcd would refuse the size of a change; None if it would not."""
    compared = len(change.expect) + len(change.created)
    operations = max(compared, len(change.put) + len(change.delete) + len(change.delete_under))
    if operations > MOST_OPERATIONS:
        return f"a change of {operations} operations is larger than etcd accepts ({MOST_OPERATIONS})"
    size = sum(len(key) + len(value) for key, value in change.put.items())
    if size > MOST_BYTES:
        return f"a change of {size} bytes is larger than etcd accepts ({MOST_BYTES})"
    return None


def transaction(keys: Keys, change: Change) -> Json:
    """Encode a change. The compared keys are read if it is not made."""
    compare = [_compare(keys.key(key), "MOD", "mod_revision", revision) for key, revision in change.expect.items()]
    compare += [_compare(keys.key(key), "CREATE", "create_revision", at) for key, at in change.created.items()]
    success: list[Json] = [{"request_delete_range": {"key": keys.key(key)}} for key in change.delete]
    success += [{"request_delete_range": keys.under(prefix)} for prefix in change.delete_under]
    success += [{"request_put": _put(keys.key(key), value, change.lease)} for key, value in change.put.items()]
    failure = [{"request_range": {"key": keys.key(key)}} for key in _compared(change)]
    return {"compare": compare, "success": success, "failure": failure}


def _compared(change: Change) -> list[str]:
    """Return the compared keys, each once."""
    return list({**change.expect, **change.created})


def _compare(key: str, target: str, field: str, revision: int) -> Json:
    return {"key": key, "target": target, "result": "EQUAL", field: str(revision)}


def _put(key: str, value: bytes, lease: int) -> Json:
    put = {"key": key, "value": _base64(value)}
    return {**put, "lease": str(lease)} if lease else put


def outcome(keys: Keys, change: Change, response: Json) -> ChangeOutcome:
    """Decode the response of a transaction."""
    if response.get("succeeded"):
        return ChangeOutcome(header(response).revision)
    actual: dict[str, Entry] = {}
    for key, branch in zip(_compared(change), response.get("responses", ()), strict=True):
        kvs = branch.get("response_range", {}).get("kvs", ())
        actual[key] = keys.entry(kvs[0]) if kvs else Entry(key, None, 0, 0)
    differing = [key for key, revision in change.expect.items() if actual[key].revision != revision]
    differing += [key for key, revision in change.created.items() if actual[key].created != revision]
    return ChangeOutcome(0, MappingProxyType({key: actual[key] for key in differing}))


def older(change: Change, outcome: ChangeOutcome, seen: int) -> str | None:
    """Return how a compared key is older than the change knew it, which no change can cause; None if no key is.

    seen  newest revision in any answer: what is expected beyond it was never known
    """
    for key, entry in outcome.conflicts.items():
        known = change.expect.get(key, 0)
        if 0 < entry.revision < known <= seen:
            return f"{key} is of revision {entry.revision}, and was of {known}"
    return None


def has_effect(response: Json) -> bool:
    """Return True if a transaction made a revision, so that the watch delivers it: one that only deletes may find no key."""
    if not response.get("succeeded"):
        return False
    for branch in response.get("responses", ()):
        if "response_put" in branch or int(branch.get("response_delete_range", {}).get("deleted", 0)):
            return True
    return False


# -- reads --


def page(keys: Keys, limit: int, revision: int, after: str | None) -> Json:
    """Encode a read of the next entries by key; `revision` 0 is the newest."""
    return {**keys.under("", after), "limit": str(limit), "revision": str(revision)}


def one_key(keys: Keys, key: str | None) -> Json:
    """Encode a linearizable read of one key; None for any one."""
    return {**keys.under(""), "limit": "1"} if key is None else {"key": keys.key(key)}


def page_entries(keys: Keys, response: Json) -> tuple[list[Entry], bool]:
    """Decode a page, and True if more follow."""
    return [keys.entry(kv) for kv in response.get("kvs", ())], bool(response.get("more"))


# -- the watch --


class WatchResponse(NamedTuple):
    """Message of a watch.

    entries      entries of changed keys, in the order of revisions
    is_created   True for the first message
    is_fragment  True if the entries go on in the next message, which may belong to the same revision
    compacted    revision below which the history was dropped, with which the watch ended; 0 otherwise
    ended        reason of the end of the watch, None if it goes on
    """

    header: Header
    entries: list[Entry]
    is_created: bool = False
    is_fragment: bool = False
    compacted: int = 0
    ended: str | None = None


def watch(keys: Keys, revision: int) -> Json:
    """Encode a watch of all keys from a revision (inclusive)."""
    return {"create_request": {**keys.under(""), "start_revision": str(revision), "fragment": True}}


def watch_response(keys: Keys, message: Json) -> WatchResponse:
    """Decode a message of a watch."""
    if "result" not in message:
        error = message.get("error")
        return WatchResponse(Header(0, 0), [], ended=failure(error if isinstance(error, dict) else message).reason)
    result = message["result"]
    entries = [keys.entry(event["kv"]) for event in result.get("events", ())]
    compacted = int(result.get("compact_revision", 0))
    ended = None
    if compacted or result.get("canceled"):
        ended = result.get("cancel_reason") or ("the revision was compacted" if compacted else "etcd ended the watch")
    created, fragment = bool(result.get("created")), bool(result.get("fragment"))
    return WatchResponse(header(result), entries, created, fragment, compacted, ended)


class Lines:
    """Splits a stream of JSON texts, one a line."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Json]:
        """Yield the texts that are complete. Raises ValueError for one that is not JSON."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            self._pieces.append(line)
            whole, self._pieces = b"".join(self._pieces), []
            if whole.strip():
                yield _object(whole)
        if rest:
            self._pieces.append(rest)


# -- leases --


def seconds(ttl_ms: int) -> int:
    """Return the time to live of a lease as etcd measures it, rounded up."""
    return max(1, -(-ttl_ms // 1000))


# -- errors --


class Failure(NamedTuple):
    """Error in a response: the code of gRPC and the reason in one line."""

    code: int
    reason: str


NOT_FOUND: Final = 5
OUT_OF_RANGE: Final = 11
_DEFINITE: Final = frozenset({3, 5, 7, 8, 9, 11, 12, 16})
"""Codes of refused requests. After another one, such as UNAVAILABLE, the request may have been carried out."""
_NOT_STARTED: Final = ("etcdserver: no leader", "etcdserver: not capable", "etcdserver: server stopped")
_STALE_LOGIN: Final = ("invalid auth token", "revision of auth store is old", "auth revision is old")
_EXPLANATIONS: Final[Mapping[str, str]] = {
    "database space exceeded": "etcd has no space left: compact and defragment it, then disarm its alarm NOSPACE",
    "permission denied": "the user of etcd has no permission for the prefix of this cluster",
    "user name is empty": "etcd requires a login: put user and password into its URL",
    "authentication failed": "etcd refuses the login: user or password is wrong",
    "authentication is not enabled": "etcd has no login enabled: remove user and password from its URL",
    "requested lease not found": "the lease has ended",
    "request is too large": "the change is larger than etcd accepts (--max-request-bytes)",
    "too many operations": "the change has more operations than etcd accepts (--max-txn-ops)",
}


def failure(message: Any) -> Failure:
    """Decode an error, of a response or within a stream."""
    if not isinstance(message, dict):
        return Failure(2, _line(str(message)))
    text = _line(str(message.get("message") or message.get("error") or "error without a message"))
    code = int(message.get("code") or message.get("grpc_code") or 2)
    for part, explanation in _EXPLANATIONS.items():
        if part in text:
            return Failure(code, explanation)
    return Failure(code, text)


def is_definite(refused: Failure) -> bool:
    """Return True if the request was not carried out, and will not be."""
    return refused.code in _DEFINITE


def is_not_started(refused: Failure) -> bool:
    """Return True if this endpoint could not begin the request, so that another one may."""
    return refused.reason.startswith(_NOT_STARTED)


def is_stale_login(refused: Failure) -> bool:
    """Return True if a new login is needed."""
    return any(part in refused.reason for part in _STALE_LOGIN)


def is_too_large(reason: str) -> bool:
    """Return True if the response was larger than the gateway forwards."""
    return "received message larger than max" in reason


def body(request: Json) -> bytes:
    """Encode a request."""
    return json.dumps(request, separators=(",", ":")).encode()


def parsed(data: bytes) -> Json:
    """Parse the body of a response. Raises ValueError."""
    return _object(data)


def _object(data: bytes) -> Json:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _line(text: str) -> str:
    return " ".join(text.split())
