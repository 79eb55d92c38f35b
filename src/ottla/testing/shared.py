"""Broker that the tests of a session share: after each of them it is as before, but for what fixtures still use."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.broker.lifecycle import BrokerServer
from ottla.testing.calls import checks_calls
from ottla.testing.clock import MovableClock
from ottla.testing.contents import EMPTY
from ottla.testing.kafka import Kafka

Created = tuple[set[str], set[str]]
"""Topics and groups."""


@checks_calls
class SharedKafka(Kafka):
    """Broker of the fixture `kafka_session`; it keeps what a fixture has created until the fixture ends."""

    def __init__(self, configs: Mapping[str, object] | None = None) -> None:
        super().__init__(configs)
        self._kept: dict[object, Created] = {}
        self.has_released = False
        """True if a fixture has ended since the last `clear`."""

    @contextmanager
    def creating(self, fixture: object, *, uses_broker: bool) -> Iterator[None]:
        """Keep the topics and groups that are created in this `with` block until `release`.

        uses_broker  the fixture may create more later, and its clients stay
        """
        topics, groups = self._existing_names()
        yield
        new_topics, new_groups = self._existing_names()
        if uses_broker or new_topics - topics or new_groups - groups:
            self._kept[fixture] = new_topics - topics, new_groups - groups

    def _existing_names(self) -> Created:
        return (set(self.topics()), set(self.groups())) if self._is_running else (set(), set())

    def release(self, fixture: object) -> None:
        """Let the next `clear` delete what a fixture has created."""
        self.has_released |= self._kept.pop(fixture, None) is not None

    def clear(self) -> None:
        """Delete what no fixture keeps, and end all faults; see `Kafka.clear`.

        While fixtures keep something, groups with members stay as well, and the broker is not replaced: it is restarted on its
        data where its clock was moved or it is down. Raises RuntimeError, after a replacement, if a test has changed settings,
        which a restart does not undo.
        """
        self.has_released = False
        with self._registry_halted():
            self._clear_released()

    def _clear_released(self) -> None:
        if not self._kept:
            self._clear()
            return
        if not self._is_running or self._clock.was_moved:
            self._end(BrokerServer.stop)
            self._clock = MovableClock()
            self._refuses_connections = False
            self._start_again()
        self.heal()
        if self._call(self._needs_new_broker):
            self._kept.clear()
            self._clear()
            raise RuntimeError(
                "the test has changed configs, quotas, users, ACLs or features of kafka_session, which were undone "
                "by a new broker: topics of fixtures are gone. Use kafka or kafka_factory in such a test"
            )
        kept_topics = set[str]().union(*(topics for topics, _ in self._kept.values()))
        kept_groups = set[str]().union(*(groups for _, groups in self._kept.values()))
        for topic in set(self.topics()) - kept_topics:
            self.delete_topic(topic)
        for group, status in self._group_statuses().items():
            if group not in kept_groups and status.state == EMPTY:
                self.delete_group(group)
