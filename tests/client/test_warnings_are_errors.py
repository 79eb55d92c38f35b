"""`python -W error`: no warning of Python takes the place of the error that a call has.

Compiled coroutines hand errors on with three arguments of `throw`, which Python 3.12 and newer warn of.
"""

import subprocess
import sys

import pytest

from .conftest import fresh

NOBODY = "127.0.0.1:1"
CALLS = {
    "admin": "with Admin(bootstrap_servers=servers) as admin: admin.list_topics(timeout=0.4)",
    "consumer": """
with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
    consumer.committed([TopicPartition("t", 0)], timeout=0.4)""",
    "producer": """
with Producer(bootstrap_servers=servers, max_block_ms=400) as producer:
    producer.send("t", value="x").result(timeout=20)""",
    "aio": """
async def main():
    async with aio.Admin(bootstrap_servers=servers) as admin: await admin.list_topics(timeout=0.4)
asyncio.run(main())""",
}
PROGRAM = """
import asyncio, sys
from ottla import Admin, Consumer, KafkaError, Producer, TopicPartition, aio
servers = sys.argv[1]
try:
    exec(sys.argv[2])
except KafkaError as error:
    print(error)
"""


def output_of(servers: str, call: str) -> str:
    """Run a program in which warnings are errors, and return its output."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM, servers, call]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("client", CALLS)
def test_an_error_keeps_its_cause(client: str) -> None:
    assert "Connection refused" in output_of(NOBODY, CALLS[client])


def test_tasks_are_cancelled(bootstrap_servers: str) -> None:
    """`close` cancels all that waits: fetches, heartbeats, the metadata of a topic that is not there."""
    topic = fresh("cancelled")
    call = f"""
with Producer(bootstrap_servers=servers) as producer:
    producer.produce({topic!r}, value="x")
    producer.flush()
with Consumer(bootstrap_servers=servers, group_id={fresh("group")!r}, auto_offset_reset="earliest") as consumer:
    consumer.subscribe([{topic!r}])
    print(consumer.poll(timeout=20).value, consumer.poll(timeout=0.1))
"""
    assert output_of(bootstrap_servers, call) == "b'x' None\n"
