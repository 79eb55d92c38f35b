"""Admin client of librdkafka: all its requests, and the metadata of the cluster."""

import time

from ottla.compat.librdkafka.admin.acls import Acls
from ottla.compat.librdkafka.admin.cluster import Cluster
from ottla.compat.librdkafka.admin.configs import Configs
from ottla.compat.librdkafka.admin.groups import Groups
from ottla.compat.librdkafka.admin.partitions import Partitions
from ottla.compat.librdkafka.admin.scram import Scram
from ottla.compat.librdkafka.admin.topics import Topics
from ottla.compat.librdkafka.handle import Client, milliseconds


class AdminClient(Topics, Configs, Cluster, Groups, Acls, Scram, Partitions, Client):
    """Requests to a cluster, with librdkafka's configs; a request about several resources returns a future for each.

    futures = AdminClient({"bootstrap.servers": "localhost:9092"}).create_topics([NewTopic("work", 3)])
    futures["work"].result()
    """

    def _check(self, message: str = "AdminClient has been closed") -> None:
        if self._admin.closed:
            raise RuntimeError(message)

    def poll(self, timeout: float = -1) -> int:
        """Run callbacks, and return their number; waits up to `timeout` seconds for the first (-1: no limit).

        Futures complete without it.
        """
        self._check()
        deadline = time.monotonic() + milliseconds(timeout) / 1000
        while not self._events and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._events.serve()

    def __len__(self) -> int:
        return len(self._events)

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._admin.close()
