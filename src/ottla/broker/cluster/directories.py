"""Log directories of this broker at its start, compared with what the metadata knows of them (KIP-858).

A replica's log is gone if its assigned directory is not among those that were opened, because its disk was replaced by an empty
one, or if the directory holds an old copy, such as a restored snapshot of the disk. A directory that could not be opened may
come back: its replicas are offline, and not gone.

Every process writes its incarnation into each directory before it registers. So a directory without the incarnation that is
registered was not there when the last process ran: it is an old copy.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.environment.files import Store
from ottla.log.directory import LogDirectory
from ottla.metadata.image import UNASSIGNED, BrokerImage, TopicImage

_logger = logging.getLogger("ottla.cluster")
_INCARNATION: Final = "ottla-incarnation"
"""File in each log directory with the incarnations of the last processes, the newest first."""
_MOST_INCARNATIONS: Final = 16
"""A process that ends before it registers adds one; the registered one is always among them."""


class Incarnation(NamedTuple):
    """Process of a broker.

    id            random, as hex
    earlier       ids of the last processes that used the same data directory; empty for a new directory
    broker_epoch  broker epoch of the last clean stop, 0 after an unclean stop
    """

    id: str
    earlier: tuple[str, ...]
    broker_epoch: int


class OwnDirectories:
    """The log directories of a broker, before it registers.

    before      the registration of the process before this one; None for a new broker
    is_partial  True if a configured directory could not be opened
    """

    def __init__(
        self, directories: Sequence[LogDirectory], files: Store, before: BrokerImage | None, *, is_partial: bool
    ) -> None:
        self._directories = directories
        self._files = files
        self._before = before
        self._is_partial = is_partial
        self._incarnations = {directory: _incarnations(files, directory.path) for directory in directories}
        registered = "" if before is None else before.incarnation
        old = [path for path, known in self._incarnations.items() if registered and known and registered not in known]
        for directory in old:
            _logger.error("%s is an old copy: it was not there when this broker ran last", directory.path)
        self._old = frozenset(directory.id for directory in old)
        self._current = frozenset(directory.id for directory in directories) - self._old

    @property
    def only_id(self) -> bytes:
        """The id of the log directory, if there is one, otherwise UNASSIGNED: where a new log will be."""
        return self._directories[0].id if len(self._directories) == 1 and not self._is_partial else UNASSIGNED

    def begin(self, own: str) -> Incarnation:
        """Write the id of a new process into the directories, and return its incarnation. Raises OSError."""
        registered = "" if self._before is None else self._before.incarnation
        before: tuple[str, ...] = ()
        for directory, known in self._incarnations.items():
            if known and (not before or registered in known):
                before = known
            # Before an old copy is overwritten: until this process has registered, the next one must see that it is one.
            kept = known if directory.id in self._old else tuple(dict.fromkeys((registered, *known)))
            earlier = [one for one in kept if one][: _MOST_INCARNATIONS - 1]
            value = {"version": 0, "incarnation": own, "earlier": earlier}
            self._files.replace(directory.path / _INCARNATION, json.dumps(value).encode())
        epochs = {directory.broker_epoch if directory.stopped_cleanly else 0 for directory in self._directories}
        return Incarnation(own, before, epochs.pop() if len(epochs) == 1 and not self._old else 0)

    def has_lost(self, topic: TopicImage, index: int, node_id: int) -> bool:
        """Return True if the log of a partition is gone with the directory that it is assigned to."""
        assigned = topic.partitions[index].directory_of(node_id)
        if assigned != UNASSIGNED:
            return assigned in self._old or not (assigned in self._current or self._is_partial)
        # An earlier release has opened it, or the last process has ended before it wrote the assignment.
        before = () if self._before is None else tuple(map(bytes.fromhex, self._before.directories))
        if self._is_partial or self._current.issuperset(before):
            return False
        name = f"{topic.name}-{index}"
        return not any(
            directory.id in self._current and self._files.is_directory(directory.path / name)
            for directory in self._directories
        )


def _incarnations(files: Store, directory: Path) -> tuple[str, ...]:
    """Return the incarnations in a directory, the newest first; empty if it has none, or the file is damaged."""
    text = files.read_text(directory / _INCARNATION)
    if text is None:
        return ()
    try:
        value: dict[str, Any] = json.loads(text)
        return (str(value["incarnation"]), *map(str, value.get("earlier", ())))
    except (ValueError, KeyError, TypeError, AttributeError):
        _logger.warning("%s is damaged", directory / _INCARNATION)
        return ()
