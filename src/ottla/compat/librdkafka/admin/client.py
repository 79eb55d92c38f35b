"""Admin client of librdkafka: all its requests, and the metadata of the cluster."""

import time
from types import TracebackType
from typing import Self

from ottla.client.errors import KafkaError as ClientError
from ottla.compat.librdkafka.admin.acls import Acls
from ottla.compat.librdkafka.admin.cluster import Cluster
from ottla.compat.librdkafka.admin.configs import Configs
from ottla.compat.librdkafka.admin.groups import Groups
from ottla.compat.librdkafka.admin.partitions import Partitions
from ottla.compat.librdkafka.admin.scram import Scram
from ottla.compat.librdkafka.admin.topics import Topics
from ottla.compat.librdkafka.errors import KafkaError, KafkaException, error_from
from ottla.compat.librdkafka.metadata import ClusterMetadata
from ottla.compat.librdkafka.producer import milliseconds


class AdminClient(Topics, Configs, Cluster, Groups, Acls, Scram, Partitions):
    """Requests to a cluster, with librdkafka's configs; a request about several resources returns a future for each.

    futures = AdminClient({"bootstrap.servers": "localhost:9092"}).create_topics([NewTopic("work", 3)])
    futures["work"].result()
    """

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers, and all topics or one. Raises KafkaException."""
        try:
            return self._admin.cluster(topic, milliseconds(timeout))
        except ClientError as error:
            code = error_from(error).code()
            raise KafkaException(KafkaError(code, f"Failed to get metadata: {KafkaError(code).str()}")) from None

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster; None if it did not come in time."""
        try:
            return self._admin.cluster_id(milliseconds(timeout))
        except ClientError:
            return None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these credentials whenever a connection logs in from now on (PLAIN, SCRAM). Raises TypeError."""
        self._admin.set_credentials(username, password)

    def poll(self, timeout: float = -1) -> int:
        """Run callbacks, and return their number; waits up to `timeout` seconds for the first (-1: no limit).

        Futures complete without it.
        """
        deadline = time.monotonic() + milliseconds(timeout) / 1000
        while not self._events and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._events.serve()

    def __len__(self) -> int:
        return len(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        self._admin.close()
