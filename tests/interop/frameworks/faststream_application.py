"""FastStream's broker of Confluent: subscribers, a publisher, batches, manual acknowledgements, a request at the test's end.

FastStream 0.6 and 0.7: https://faststream.ag2.ai/latest/confluent/
"""

import asyncio
import sys
from typing import Any

import confluent_kafka
from faststream import AckPolicy, FastStream  # type: ignore[import-not-found]
from faststream.confluent import KafkaBroker, KafkaMessage  # type: ignore[import-not-found]
from pydantic import BaseModel  # type: ignore[import-not-found]

_WAIT_S = 40


class Order(BaseModel):  # type: ignore[misc]
    """An order."""

    number: int
    user: str


def application(bootstrap: str, topic: str, received: dict[str, list[Any]]) -> tuple[KafkaBroker, FastStream]:
    """Return the application; what it receives goes to lists by name."""
    broker = KafkaBroker(bootstrap, client_id="faststream", config={"topic.metadata.refresh.fast.interval.ms": 300})

    @broker.subscriber(f"{topic}-orders", group_id=f"{topic}-a", auto_offset_reset="earliest")  # type: ignore[untyped-decorator]
    @broker.publisher(f"{topic}-totals", key=b"total")  # type: ignore[untyped-decorator]
    async def handle(order: Order) -> dict[str, Any]:
        received["orders"].append((order.number, order.user))
        return {"total": order.number * 10}

    @broker.subscriber(  # type: ignore[untyped-decorator]
        f"{topic}-totals", group_id=f"{topic}-b", auto_offset_reset="earliest", batch=True, max_records=10
    )
    async def handle_batch(totals: list[dict[str, int]]) -> None:
        received["totals"].extend(row["total"] for row in totals)

    @broker.subscriber(  # type: ignore[untyped-decorator]
        f"{topic}-totals", group_id=f"{topic}-c", auto_offset_reset="earliest", ack_policy=AckPolicy.MANUAL
    )
    async def handle_manually(total: dict[str, int], message: KafkaMessage) -> None:
        first = not received["keys"]
        received["keys"].append((message.raw_message.key(), message.headers.get("correlation_id") is not None))
        if first:
            await message.nack()  # comes again
        else:
            await message.ack()

    return broker, FastStream(broker)


async def main(bootstrap: str, topic: str) -> None:
    """Run the application until everything has arrived."""
    received: dict[str, list[Any]] = {"orders": [], "totals": [], "keys": []}
    broker, app = application(bootstrap, topic, received)

    @app.after_startup  # type: ignore[untyped-decorator]
    async def publish() -> None:
        for number in range(3):
            await broker.publish(
                Order(number=number, user="ann"), f"{topic}-orders", key=b"ann", headers={"n": str(number)}
            )
        await broker.publish_batch({"number": 3, "user": "bob"}, {"number": 4, "user": "bob"}, topic=f"{topic}-orders")
        assert await broker.ping(timeout=_WAIT_S)

    async def stop_when_complete() -> None:
        try:
            async with asyncio.timeout(_WAIT_S):
                while len(received["totals"]) < 5 or len(received["keys"]) < 6:
                    await asyncio.sleep(0.05)
        finally:
            app.exit()

    watcher = asyncio.create_task(stop_when_complete())
    await app.run()
    await watcher
    assert sorted(received["orders"]) == [(0, "ann"), (1, "ann"), (2, "ann"), (3, "bob"), (4, "bob")]
    assert sorted(received["totals"]) == [0, 10, 20, 30, 40]
    assert received["keys"] == [(b"total", True)] * 6


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    sys.stdout.write(f"{confluent_kafka.Producer.__module__}\n")
