"""Messages of the console consumers about a topic or partition that does not exist, on both brokers."""

import pytest

from ottla import Admin

from .commands import Commands
from .conftest import fresh


@pytest.mark.parametrize("command", ["console-consumer", "console-share-consumer"])
def test_a_topic_that_reading_creates_is_named(commands: Commands, admin: Admin, command: str) -> None:
    name = fresh()
    result = commands.run(command, "--topic", name, "--timeout-ms", "200")
    assert f"topic {name} did not exist: it was created by reading it\n" in result.stderr
    assert name in admin.list_topics()
    again = commands.run(command, "--topic", name, "--timeout-ms", "200")
    assert name not in again.stderr


def test_a_topic_that_the_consumer_does_not_create(commands: Commands, admin: Admin) -> None:
    name = fresh()
    words = ["--topic", name, "--timeout-ms", "200", "--command-property", "allow.auto.create.topics=false"]
    assert f"topic {name} does not exist: waiting for it\n" in commands.run("console-consumer", *words).stderr
    assert name not in admin.list_topics()


def test_a_partition_that_does_not_exist_is_an_error(commands: Commands, topic: str) -> None:
    assert (
        commands.refused("console-consumer", "--topic", topic, "--partition", "7")
        == f"topic {topic} has no partition 7: it has 0 to 1"
    )
