"""Controlled shutdown of this broker, and its part in the shutdowns of others.

A broker that stops writes three things into its sign of life, one after the other:

    stopping   the controller elects other leaders for what it leads, and removes it from the ISRs
    awaited    revision of the last of these moves, once its own image shows that it leads nothing and has left the ISRs
    (removal)  when every other live broker has published an applied revision that is not below `awaited`

Until the end it serves requests, and answers NOT_LEADER_OR_FOLLOWER with the new leader. Afterwards every broker that a client
may turn to knows the new leaders. The others publish their applied revision only for that, once for each shutdown.

It is bounded in time, because the others may be too slow, and it ends at once without another broker that could take over.
Brokers of releases without applied revisions are not waited for.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ottla.environment import Clock
from ottla.metadata.image import Delta, Image, Liveness, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, keys
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.cluster")
LIMIT_MS: Final = 20_000
"""Maximum time of a controlled shutdown: less than the 30 s after which Kubernetes kills a container."""
_CHECK_MS: Final = 5
_REPORT_MS: Final = 1_000
_RETRY_MS: Final = 100


class LivenessWriter:
    """Writes fields of this broker's sign of life, one change at a time.

    own  returns the current sign of life; None without one, or after the end
    """

    def __init__(
        self, node_id: int, metadata: Metadata, scheduler: Scheduler, own: Callable[[], Liveness | None]
    ) -> None:
        self._key = keys.live_key(node_id)
        self._metadata = metadata
        self._scheduler = scheduler
        self._own = own
        self._fields: dict[str, bool | int] = {}
        self._is_writing = False

    def write(self, **fields: bool | int) -> None:
        """Write fields, and repeat that until the image has them or the sign of life has ended."""
        self._fields |= fields
        if not self._is_writing:
            self._is_writing = True
            self._scheduler.background(self._write(), "writing the sign of life")

    async def _write(self) -> None:
        try:
            while (sign := self._own()) is not None:
                new = sign._replace(**self._fields)  # type: ignore[arg-type]  # (the fields are those of `Liveness`)
                if new == sign:
                    break
                # Compared with its own revision: a later sign of life, with another lease, must not be replaced.
                expect = {self._key: self._metadata.image.revision_of(self._key)}
                change = Change(expect, put={self._key: new.encoded()}, lease=sign.lease)
                outcome = await self._metadata.submit(change)
                if outcome.error is not None:
                    await self._scheduler.sleep(_RETRY_MS)
        finally:
            self._is_writing = False
            self._fields = {}


class AppliedRevisions:
    """Publishes that this broker has applied a revision which the shutdown of another one waits for."""

    def __init__(self, node_id: int, metadata: Metadata, scheduler: Scheduler, writer: LivenessWriter) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._scheduler = scheduler
        self._writer = writer
        self._is_publishing = False

    def _revision_to_publish(self) -> int:
        """Return the newest revision that another broker waits for, 0 if this one has published it or none is."""
        live = self._metadata.image.live
        own = live.get(self._node_id)
        newest = max((sign.awaited for node, sign in live.items() if node != self._node_id), default=0)
        return 0 if own is None or own.applied >= newest else newest

    def apply(self, delta: Delta) -> None:
        """Act on a change of the metadata."""
        if delta.membership and not self._is_publishing and self._revision_to_publish():
            self._is_publishing = True
            self._scheduler.background(self._publish(), "publishing the applied revision")

    async def _publish(self) -> None:
        try:
            revision = self._revision_to_publish()
            # The listeners have not all acted on the image that shows the shutdown.
            is_applied = await self._metadata.when_applied(revision)
            if revision and is_applied:
                # Not a newer one: deltas that come before this one is written would be reasons for more changes.
                self._writer.write(applied=revision)
        finally:
            self._is_publishing = False


class Holdings:
    """Partitions that a broker leads, and others that it is in the ISR of beside other replicas.

    changes  number of partitions that were added or removed so far
    """

    def __init__(self, node_id: int, image: Image) -> None:
        self._node_id = node_id
        self._held: dict[tuple[bytes, int], bool] = {}
        """True where it leads."""
        self.led = 0
        self.changes = 0
        for topic in image.topics.values():
            self._note(topic, range(len(topic.partitions)))

    def __len__(self) -> int:
        return len(self._held)

    def apply(self, delta: Delta) -> None:
        """Follow a change of the metadata."""
        for topic in delta.deleted:
            for index in range(len(topic.partitions)):
                self._enter((topic.id, index), None)
        for topic in delta.changed:
            self._note(topic, range(len(topic.partitions)))
        for name, indexes in delta.moved.items():
            self._note(delta.image.topics[name], indexes)

    def _note(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        for index in indexes:
            partition = topic.partitions[index]
            leads = partition.leader == self._node_id
            held = leads or (self._node_id in partition.isr and len(partition.isr) > 1)
            self._enter((topic.id, index), leads if held else None)

    def _enter(self, place: tuple[bytes, int], leads: bool | None) -> None:
        if self._held.get(place) is not leads:
            self.changes += 1
        self.led -= self._held.pop(place, False)
        if leads is not None:
            self._held[place] = leads
            self.led += leads

    def __str__(self) -> str:
        return f"{self.led} partitions led, {len(self._held) - self.led} others in sync"


class ControlledShutdown:
    """Hands over what this broker leads, and waits until the other brokers know.

    is_live  returns True while this broker has a sign of life
    resign   begins to let another broker become controller, if this one is it
    """

    def __init__(
        self,
        node_id: int,
        metadata: Metadata,
        clock: Clock,
        scheduler: Scheduler,
        writer: LivenessWriter,
        is_live: Callable[[], bool],
        resign: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._scheduler = scheduler
        self._writer = writer
        self._is_live = is_live
        self._resign = resign
        self._holdings = Holdings(node_id, metadata.image)
        self._begun_ms = self._report_ms = clock.now_ms()
        self._awaited = 0

    def apply(self, delta: Delta) -> None:
        """Act on a change of the metadata."""
        before = self._holdings.changes
        self._holdings.apply(delta)
        if self._holdings.changes != before:
            # Also if nothing is left again: the broker joined an ISR and was removed from it while it waited.
            self._awaited = 0

    async def run(self) -> None:
        """Hand over, and return when this broker may end."""
        if not self._has_successors():
            return
        begun_with = str(self._holdings)
        _logger.info("controlled shutdown of node %d: %s", self._node_id, begun_with)
        self._resign()
        self._writer.write(is_stopping=True)
        while (state := self._state()) is not None:
            if not self._has_successors():
                _logger.info("node %d has no other broker left that could take over: %s", self._node_id, state)
                return
            reason = self._reason_to_give_up()
            if reason is not None:
                text = "node %d stops without completing its controlled shutdown: %s; %s"
                _logger.warning(text, self._node_id, reason, state)
                return
            self._report(state)
            await self._scheduler.sleep(_CHECK_MS)
            self._resign()  # it may have stood for election when the stop began
        _logger.info(
            "controlled shutdown of node %d took %d ms: handed over %s", self._node_id, self._elapsed_ms(), begun_with
        )

    def _elapsed_ms(self) -> int:
        return self._clock.now_ms() - self._begun_ms

    def _state(self) -> str | None:
        """Take the next step. Return what the shutdown waits for, None when it is complete."""
        image = self._metadata.image
        if self._holdings:
            return f"left are {self._holdings}; the controller is node {image.controller_id}"
        if not self._awaited:
            self._awaited = image.revision
            self._writer.write(awaited=self._awaited)
        behind = [
            node
            for node, sign in image.live.items()
            if node != self._node_id and node in image.brokers and 0 <= sign.applied < self._awaited
        ]
        if not behind:
            return None
        return f"nodes {', '.join(map(str, sorted(behind)))} have not applied revision {self._awaited} of the metadata"

    def _reason_to_give_up(self) -> str | None:
        if not self._is_live():
            return "it was fenced, or its session has ended"
        if self._elapsed_ms() >= LIMIT_MS:
            return f"it takes longer than {LIMIT_MS} ms"
        return None

    def _has_successors(self) -> bool:
        """Return True while another broker is live and does not stop."""
        return any(self._metadata.image.is_active(node) for node in self._metadata.image.live if node != self._node_id)

    def _report(self, state: str) -> None:
        now_ms = self._clock.now_ms()
        if now_ms >= self._report_ms + _REPORT_MS:
            self._report_ms = now_ms
            _logger.info("controlled shutdown of node %d, after %d ms: %s", self._node_id, self._elapsed_ms(), state)
