"""The URL of an etcd cluster."""

import pytest

from ottla.metadata.store.etcd.url import EtcdUrl, parse


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("etcd://host", EtcdUrl((("host", 2379),), "/ottla")),
        ("etcd://host/", EtcdUrl((("host", 2379),), "/ottla")),
        ("etcd://host:1/p", EtcdUrl((("host", 1),), "/p")),
        ("etcd://a:1,b,[::1]:3,[::2]/p/q/", EtcdUrl((("a", 1), ("b", 2379), ("::1", 3), ("::2", 2379)), "/p/q")),
        ("etcd://me:se%40cret@a:1/p", EtcdUrl((("a", 1),), "/p", "me", "se@cret")),
        ("etcd://me:a@b:c@a:1/p", EtcdUrl((("a", 1),), "/p", "me", "a@b:c")),
        ("etcd://me@a", EtcdUrl((("a", 2379),), "/ottla", "me", "")),
    ],
)
def test_parts(text: str, url: EtcdUrl) -> None:
    assert parse(text) == url


def test_text_hides_the_login() -> None:
    assert str(parse("etcd://me:secret@a:1,[::1]/p")) == "etcd://a:1,[::1]:2379/p"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http://host:1/p", "must begin with etcd://"),
        ("host:1", "must begin with etcd://"),
        ("etcd://", "endpoint without a host"),
        ("etcd:///p", "endpoint without a host"),
        ("etcd://a,/p", "endpoint without a host"),
        ("etcd://:1/p", "endpoint without a host"),
        ("etcd://a:/p", "no valid port"),
        ("etcd://a:x/p", "no valid port"),
        ("etcd://a:0/p", "no valid port"),
        ("etcd://a:65536/p", "no valid port"),
        ("etcd://a:²/p", "no valid port"),
        ("etcd://::1/p", "not like host:2379 or"),
        ("etcd://[::1/p", "not like"),
        ("etcd://[::1]2379/p", "not like"),
        ("etcd://a:1,a:1/p", "twice"),
        ("etcd://a:1,a:1", "twice"),
        ("etcd://a//p", "empty part"),
        ("etcd://a/p?x=1", "no parameters"),
        ("etcd://:pw@a/p", "login without a user"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        parse(text)
    assert "\n" not in str(raised.value)
    assert "pw" not in str(raised.value)
