"""The metadata store: keys, values and revisions, embedded in one broker or shared by a cluster.

Every change gets the next revision of the store. A change takes effect for a broker when the watch delivers it, whoever made
it: there is one way in for own and foreign changes, in the order of revisions.

    change ---> store ---> watcher.changed(revision, entries) of every broker
                  |
                  '------> outcome, to the broker that made the change; for an embedded store after its watcher was called

A watcher may be called once for several revisions: it then gets the newest entry of each changed key, so that a key that was
deleted and created again between two calls is seen only with its new creation revision.

A change is asynchronous: a store that flushes it to disk, or sends it to a server, answers later and blocks no other request
meanwhile. A store that does neither may answer at once. The changes of one broker take effect in the order in which they were
made.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ottla.tasks.deferred import Answer

_NO_REVISIONS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_VALUES: Final[Mapping[str, bytes]] = MappingProxyType({})


class Entry(NamedTuple):
    """State of a key.

    value     None for a deleted key
    revision  revision of the store at which the key was last written or deleted
    created   revision at which the key was created, 0 for a deleted key
    lease     id of the lease with which the key ends, 0 for a key without lease
    """

    key: str
    value: bytes | None
    revision: int
    created: int
    lease: int = 0


class Change(NamedTuple):
    """Transaction: all of its puts and deletions if every comparison holds, otherwise nothing.

    expect        key -> revision at which it must have been written last, 0 if it must not exist
    created       key -> revision at which it must have been created, 0 if it must not exist
    put           values by key
    delete        keys; deleting a key that does not exist is no error
    delete_under  prefixes: every key that begins with one is deleted
    lease         id of the lease of the keys that are put; 0: they have none
    """

    expect: Mapping[str, int] = _NO_REVISIONS
    created: Mapping[str, int] = _NO_REVISIONS
    put: Mapping[str, bytes] = _NO_VALUES
    delete: Sequence[str] = ()
    delete_under: Sequence[str] = ()
    lease: int = 0


class ChangeOutcome(NamedTuple):
    """Outcome of a change.

    revision    revision of the change; 0 if it was not made
    conflicts   entries of the compared keys whose comparison failed, as the store had them then (a missing key has value None,
                revision 0); empty unless a comparison failed
    error       reason of a failed write, in one line; None without such an error
    is_unknown  True if the change may have been made nevertheless: no answer came in time
    """

    revision: int
    conflicts: Mapping[str, Entry] = MappingProxyType({})
    error: str | None = None
    is_unknown: bool = False


class Snapshot(NamedTuple):
    """All entries, by key, at a revision; the revision of an empty store is 0.

    error  reason in one line why the contents cannot be read; None if this is the contents
    """

    entries: Sequence[Entry]
    revision: int
    error: str | None = None


class LeaseOutcome(NamedTuple):
    """Outcome of a request for a lease; `id` is 0 and `error` the reason, in one line, if it failed."""

    id: int
    error: str | None = None


class Watcher(Protocol):
    """Receives the changes of a store."""

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        """Handle all changes after the last delivered revision, up to `revision`: the newest entry of each changed key."""

    def reloaded(self, snapshot: Snapshot) -> None:
        """Handle the whole contents, after the store has dropped changes that were not delivered yet."""

    def failed(self, reason: str) -> None:
        """Handle a store that must not be used any more, such as one that was restored from a backup; `reason` is one line."""


class MetadataStore(Protocol):
    """Store of sorted keys with revisions, compare-and-set, a watch and leases. An answered change survives a crash.

    largest_change  maximum number of puts, of deletions and of comparisons in one change
    """

    @property
    def largest_change(self) -> int: ...

    def load(self) -> Answer[Snapshot]:
        """Return the contents."""

    def watch(self, revision: int, watcher: Watcher) -> None:
        """Deliver all changes after `revision` to the watcher, in order, until the store is closed. There is one watcher."""

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """Carry out a transaction."""

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        """Create a lease, which ends `ttl_ms` after it was last renewed; its keys are deleted when it ends."""

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        """Renew a lease. The outcome's id is 0 without an error if the lease has ended."""

    def revoke(self, lease: int) -> Answer[bool]:
        """End a lease, and delete its keys; the answer is False if the store did not confirm it. An ended lease is no error."""

    def close(self) -> None:
        """Complete the changes that have begun, then close the store; nothing is delivered any more."""
