"""Topics that are missing or denied: how often a denial is an error."""

from ottla.client.errors import NotAuthorized
from ottla.client.missing_topics import MissingTopics
from ottla.protocol.errors import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION


def test_a_denial_is_an_error_once_in_ten_seconds() -> None:
    topics = MissingTopics()
    errors = []
    for now_ms in range(0, 20_001, 2_500):
        topics.add("t", TOPIC_AUTHORIZATION_FAILED, "Read", now_ms)
        error = topics.denial(["t", "other"], "Read")
        assert topics.denial(["t"], "Read") is None
        if error is not None:
            assert isinstance(error, NotAuthorized)
            assert "It needs Read on topic t: " in str(error)
            errors.append(now_ms)
    assert errors == [0, 10_000, 20_000]


def test_each_topic_is_named_by_its_own_denial() -> None:
    topics = MissingTopics()
    topics.add("a", TOPIC_AUTHORIZATION_FAILED, "Read", 0)
    assert "topic a" in str(topics.denial(["a", "b"], "Write"))
    topics.add("b", TOPIC_AUTHORIZATION_FAILED, "Read", 100)
    error = str(topics.denial(["a", "b"], "Write"))
    assert "topic b" in error
    assert "topic a" not in error


def test_a_topic_that_is_missing_is_not_denied() -> None:
    topics = MissingTopics()
    topics.add("t", TOPIC_AUTHORIZATION_FAILED, "Read", 0)
    topics.add("t", UNKNOWN_TOPIC_OR_PARTITION, "Read", 10)
    assert topics.denial(["t"], "Read") is None
