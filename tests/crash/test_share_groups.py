"""Share groups over kill -9: what was acknowledged counts, what was only acquired is delivered again."""

import random
from pathlib import Path

from tests.conformance.conftest import TopicFactory
from tests.conformance.shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareMember,
    configure,
    group_name,
    initialize,
    ranges,
    summary,
)
from tests.crash.conftest import Process, Start

RECORDS = 60


def test_locks_and_acknowledgements(start: Start) -> None:
    broker = start()
    topic, group = TopicFactory(broker.wire())(), group_name()
    initialize(topic.wire, group, topic)
    topic.append(20)
    member = ShareMember(topic.wire, group)
    member.take(topic, 20)
    assert member.acknowledge(topic, (0, 4, ACCEPT), (8, 9, RELEASE), (12, 12, REJECT)) == "NONE"
    broker.kill()
    broker = start(port=broker.port)
    topic.wire = broker.wire()
    assert summary(topic.wire, group, topic).delivery_complete_count == 6
    member = ShareMember(topic.wire, group)
    taken = ranges(member.take(topic, 14))
    assert taken == [(5, 7, 1), (8, 9, 2), (10, 11, 1), (13, 19, 1)]
    assert member.acknowledge(topic, (5, 11, ACCEPT), (13, 19, ACCEPT)) == "NONE"
    broker.kill()
    broker = start(port=broker.port)
    topic.wire = broker.wire()
    topic.append(1)
    assert ShareMember(topic.wire, group).take(topic, 1) == [(20, 20, 1)]


def test_accepted_records_are_not_delivered_again_after_random_kills(
    tmp_path: Path, rounds: int, dice: random.Random
) -> None:
    """No record is lost, and none comes again once it was accepted."""
    broker = Process(tmp_path / "data")
    try:
        topic, group = TopicFactory(broker.wire())(), group_name()
        initialize(topic.wire, group, topic)
        configure(topic.wire, group, share_delivery_count_limit="10")
        for _ in range(RECORDS // 5):
            topic.append(5)
        accepted: set[int] = set()
        for _ in range(rounds * 2):
            members = [ShareMember(broker.wire(), group) for _ in range(2)]
            for _ in range(dice.randrange(1, 6)):
                member = dice.choice(members)
                partitions = member.fetch(topic, max_records=dice.randrange(1, 20), max_wait_ms=50, min_bytes=1)
                for first, last, _ in partitions[0].acquired if 0 in partitions else ():
                    assert not accepted & set(range(first, last + 1))
                    middle = dice.randint(first, last)
                    kind = dice.choice((ACCEPT, ACCEPT, RELEASE))
                    if dice.random() < 0.7:
                        assert member.acknowledge(topic, (first, middle, kind)) == "NONE"
                        if kind == ACCEPT:
                            accepted |= set(range(first, middle + 1))
            port = broker.port
            broker.kill()
            broker = Process(tmp_path / "data", port=port)
            topic.wire = broker.wire()
        member = ShareMember(topic.wire, group)
        while len(accepted) < RECORDS:
            for first, last, _ in member.take(topic, 1):
                assert not accepted & set(range(first, last + 1))
                assert member.acknowledge(topic, (first, last, ACCEPT)) == "NONE"
                accepted |= set(range(first, last + 1))
        assert summary(topic.wire, group, topic).start_offset <= RECORDS
    finally:
        if broker.runs:
            broker.kill()
