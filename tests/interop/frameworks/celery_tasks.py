"""Celery over Kombu's transport of Kafka: a worker, tasks with results, a retry, a chain.

Celery 5: https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/kafka.html
"""

import sys
import tempfile
from typing import Any

import confluent_kafka
from celery import Celery, chain  # type: ignore[import-not-found]
from celery.contrib.testing.worker import start_worker  # type: ignore[import-not-found]

_WAIT_S = 40


def application(bootstrap: str, queue: str, results: str) -> Any:
    """Return an application with a queue of its own, and a directory of results."""
    app = Celery("tasks", broker=f"confluentkafka://{bootstrap}", backend=f"file://{results}")
    app.conf.update(
        task_default_queue=queue,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"wait_time_seconds": 1, "kafka_common_config": {"client.id": "celery"}},
    )
    return app


def main(bootstrap: str, topic: str) -> None:
    """Run a worker in a thread, and tasks."""
    attempts: list[int] = []
    with tempfile.TemporaryDirectory() as results:
        app = application(bootstrap, topic, results)

        def add(first: int, second: int) -> int:
            return first + second

        def succeed_later(task: Any) -> int:
            attempts.append(task.request.retries)
            if len(attempts) < 3:
                raise task.retry(countdown=0, max_retries=5)
            return len(attempts)

        adding = app.task(name="add")(add)
        retried = app.task(name="succeed_later", bind=True)(succeed_later)
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=_WAIT_S):
            outcomes = [adding.delay(number, 1) for number in range(5)]
            assert [outcome.get(timeout=_WAIT_S) for outcome in outcomes] == [1, 2, 3, 4, 5]
            assert retried.delay().get(timeout=_WAIT_S) == 3
            assert chain(adding.s(1, 2), adding.s(10), adding.s(100))().get(timeout=_WAIT_S) == 113
    assert attempts == [0, 1, 2]


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write(f"{confluent_kafka.Producer.__module__}\n")
