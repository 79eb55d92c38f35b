"""Quix Streams: a dataframe with a state store, a window and an exactly-once output; a restart goes on.

Quix Streams 3: https://quix.io/docs/quix-streams/introduction.html
"""

import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

import confluent_kafka
from quixstreams import Application, State  # type: ignore[import-not-found]

_WAIT_S = 30


def application(bootstrap: str, topic: str, directory: str) -> Any:
    """Return an application of a group with a directory of state."""
    return Application(
        broker_address=bootstrap,
        consumer_group=f"{topic}-totals",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=directory,
        commit_interval=0.5,
        loglevel="WARNING",
    )


def produce(app: Any, topic: Any, rows: list[tuple[str, int, int]]) -> None:
    """Produce rows of user, amount and timestamp."""
    with app.get_producer() as producer:
        for user, amount, timestamp in rows:
            message = topic.serialize(key=user, value={"user": user, "amount": amount}, timestamp_ms=timestamp)
            producer.produce(topic.name, key=message.key, value=message.value, timestamp=message.timestamp)


def add(row: dict[str, Any], state: State) -> dict[str, Any]:
    """Add an amount to the total of a user."""
    total = state.get("total", 0) + row["amount"]
    state.set("total", total)
    return {"user": row["user"], "total": total}


def run(bootstrap: str, topic: str, directory: str, rows: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
    """Process rows with a new application, until there are as many results; return them."""
    app = application(bootstrap, topic, directory)
    orders = app.topic(f"{topic}-orders", key_deserializer="str", value_deserializer="json")
    totals = app.topic(f"{topic}-totals", key_serializer="str", value_serializer="json")
    windows = app.topic(f"{topic}-windows", value_serializer="json")
    produce(app, orders, rows)
    frame = app.dataframe(orders)
    frame.apply(lambda row: row["amount"]).tumbling_window(timedelta(seconds=10)).sum().current().to_topic(windows)
    results: list[dict[str, Any]] = []
    frame = frame.apply(add, stateful=True).to_topic(totals)
    frame.update(results.append)
    app.run(count=2 * len(rows), timeout=_WAIT_S)  # each row has an output in both branches
    return results


def values_of(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Return the values of a topic that are committed."""
    app = Application(
        broker_address=bootstrap, consumer_group=f"{topic}-check", auto_offset_reset="earliest", loglevel="WARNING"
    )
    source = app.topic(topic, value_deserializer="json")
    values: list[Any] = []
    with app.get_consumer() as consumer:
        consumer.subscribe([topic])
        while len(values) < count:
            message = consumer.poll(_WAIT_S)
            assert message is not None, values
            assert message.error() is None
            values.append(source.deserialize(message).value)
            consumer.store_offsets(message)
        assert consumer.poll(1) is None
    return values


def main(bootstrap: str, topic: str) -> None:
    """Process in two runs: the second one goes on with the state of the first, in another directory."""
    begin = int(time.time()) // 10 * 10_000  # of a window; records of 1970 would be deleted as too old
    first = [("ann", 5, begin + 1_000), ("bob", 7, begin + 2_000), ("ann", 1, begin + 3_000)]
    with tempfile.TemporaryDirectory() as directory:
        totals = run(bootstrap, topic, directory, first)
    assert totals == [{"user": "ann", "total": 5}, {"user": "bob", "total": 7}, {"user": "ann", "total": 6}], totals
    with tempfile.TemporaryDirectory() as directory:  # the state is restored from its changelog topic
        totals = run(bootstrap, topic, directory, [("ann", 10, begin + 4_000), ("bob", 1, begin + 12_000)])
    assert totals == [{"user": "ann", "total": 16}, {"user": "bob", "total": 8}], totals
    assert len(values_of(bootstrap, f"{topic}-totals", 5)) == 5
    sums = [row["value"] for row in values_of(bootstrap, f"{topic}-windows", 5)]
    assert sorted(sums) == [1, 5, 6, 7, 16], sums


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write(f"{confluent_kafka.Producer.__module__}\n")
