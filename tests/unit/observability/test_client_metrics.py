"""What clients have pushed, kept for who looks at it."""

from ottla.observability.client_metrics import ClientMetrics, ReceivedMetrics


def test_the_newest_push_of_each_instance_is_kept() -> None:
    received = ReceivedMetrics()
    received.receive(b"a" * 16, "c", "User:a", b"one", 5, terminated=False)
    received.receive(b"b" * 16, "", "User:b", b"other", 6, terminated=False)
    received.receive(b"a" * 16, "c", "User:a", b"three", 7, terminated=False)
    received.receive(b"a" * 16, "c", "User:a", b"", 8, terminated=True)
    assert received.instances() == {
        b"b" * 16: ClientMetrics("", "User:b", 1, 5, 6, b"other", terminated=False),
        b"a" * 16: ClientMetrics("c", "User:a", 3, 8, 8, b"three", terminated=True),
    }
    assert (received.pushes, received.size) == (4, 13)


def test_those_that_pushed_long_ago_go_first() -> None:
    received = ReceivedMetrics()
    for number in range(1025):
        received.receive(number.to_bytes(16, "big"), "", "User:b", b"x", number, terminated=False)
    assert len(received.instances()) == 1024
    assert bytes(16) not in received.instances()
