"""Views of the console on topics, groups and brokers: groups of a topic, configs of a broker, orders, empty lists."""

import json
import re

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.testing import EmbeddedBroker
from tests.console import Broker
from tests.console.browser import Browse, Browser

pytestmark = pytest.mark.usefixtures("flights")


def section(text: str, title: str) -> str:
    """Return a page from a heading to the next one."""
    return text.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]


def names(text: str) -> list[str]:
    """Return the first column of a list."""
    return re.findall(r"<tr><td><a [^>]*>([^<]+)</a>", text)


# Groups of a topic.


def test_a_topic_shows_the_groups_that_read_it(browser: Browser, admin: Admin, broker: Broker) -> None:
    admin.create_topics([NewTopic("read", 2, 1), NewTopic("not-read", 1, 1)]).check()
    assert "No group has offsets or members" in section(browser.get("/topics/read"), "Groups")
    with Producer(broker.client) as producer:
        for _ in range(10):
            producer.produce("read", "v", partition=0)
    admin.alter_consumer_group_offsets("reader", {TopicPartition("read", 0): 4, TopicPartition("flights", 0): 1})
    configs = {**broker.client, "group.id": "without offsets", "enable.auto.commit": "false"}
    with Consumer(configs) as consumer:
        consumer.subscribe(["read"])
        while not consumer.assignment():
            consumer.poll(0.1)
        shown = section(browser.get("/topics/read"), "Groups")
        assert names(shown) == ["reader", "without offsets"]
        rows = [re.findall(r'<td class="n">([^<]*)</td>', row) for row in shown.split("<tr>")[2:]]
        assert rows == [["0", "1", "6"], ["1", "2", "–"]]
    assert "No group has" in section(browser.get("/topics/not-read"), "Groups")


# A broker.


def test_a_broker_has_a_page_with_its_configs(browser: Browser) -> None:
    assert 'href="/c/test/brokers/1"' in browser.get("")
    text = browser.get("/brokers/1")
    own, others = text.split("configs with their defaults")
    assert re.search(r">offsets.topic.num.partitions</span></td><td>2</td><td>50</td><td>static broker<", own)
    assert "log.retention.hours" in others
    assert "controller" in text
    assert "no broker 77; it has: 1" in browser.get("/brokers/77", 404)
    assert "must be a number" in browser.get("/brokers/x", 400)


# Orders.


def test_topics_are_sorted_by_every_column_over_all_pages(browser: Browser, admin: Admin, broker: Broker) -> None:
    admin.create_topics([NewTopic(f"sorted-{number:02}", 1 + number % 3, 1) for number in range(55)]).check()
    with Producer(broker.client) as producer:
        for number in range(55):
            for _ in range(number):
                producer.produce(f"sorted-{number:02}", "v" * 100, partition=0)
    for column, first in (("records", "sorted-54"), ("size", "sorted-54"), ("name", "sorted-54")):
        text = browser.get("/topics", q="sorted-", sort=column, desc="1")
        assert names(text)[0] == first, column
        assert len(names(text)) == 50
        assert 'aria-sort="descending"' in text
        assert names(browser.get("/topics", q="sorted-", sort=column))[0] == "sorted-00"
    for column in ("partitions", "replicas", "rate", "health"):
        pages = [browser.get("/topics", q="sorted-", sort=column, desc="1", page=page) for page in (1, 2)]
        assert len({*names(pages[0]), *names(pages[1])}) == 55, column
    three = names(browser.get("/topics", q="sorted-", sort="partitions", desc="1"))[:18]
    assert all(int(name[-2:]) % 3 == 2 for name in three)
    link = re.search(r'href="([^"]*sort=size[^"]*)"', browser.get("/topics", q="sorted-"))
    assert link is not None
    assert "q=sorted-" in link[1]
    assert names(browser.get("/topics", q="sorted-", sort="no such column"))[0] == "sorted-00"


def test_groups_are_sorted_by_every_column(browser: Browser, admin: Admin) -> None:
    for number in range(3):
        admin.alter_consumer_group_offsets(f"ordered-{number}", {TopicPartition("flights", 0): 5 * number})
    for column in ("id", "lag", "type", "state", "protocol"):
        assert len(names(browser.get("/groups", q="ordered-", sort=column))) == 3
    assert names(browser.get("/groups", q="ordered-", sort="id", desc="1"))[0] == "ordered-2"
    assert names(browser.get("/groups", q="ordered-", sort="lag", desc="1")) == ["ordered-0", "ordered-1", "ordered-2"]


# Values and times.


def test_a_long_value_is_on_the_page_as_a_whole_or_one_click_away(
    browser: Browser, admin: Admin, broker: Broker
) -> None:
    admin.create_topics([NewTopic("long", 1, 1)]).check()
    values = [json.dumps({f"f{index}": index for index in range(count)}) for count in (2, 40, 2_000)]
    with Producer(broker.client) as producer:
        for value in values:
            producer.produce("long", value)
    text = browser.get("/topics/long/messages", start="oldest")
    short, folded, cut = re.findall(r'<td class="value">(.*?)</td>', text, re.DOTALL)
    assert "long" not in short
    assert "<details><summary>" in folded
    assert '"f39": 39' in folded
    assert '<a href="/c/test/topics/long/messages/0/2">Open all ' in cut
    assert '"f1999": 1999' in browser.get("/topics/long/messages/0/2")


def test_a_time_is_one_element_that_is_not_broken(browser: Browser) -> None:
    assert re.search(r"<td><time>2023-11-14 22:\d\d:20\.000</time></td>", browser.get("/topics/flights/messages"))
    assert "time { white-space: nowrap; }" in browser.client.get("/static/console.css").text


# Wrong filters.

WRONG = [
    ({"json": "$.delay >"}, "Not understood"),
    ({"key": "(", "regex": "1"}, "The regular expression is not valid"),
    ({"start": "offset", "at": "soon"}, "Offset must be a number"),
    ({"start": "time", "at": "yesterday"}, "yesterday"),
    ({"start": "middle"}, "start is one of"),
    ({"format": "xml"}, "format is one of"),
    ({"limit": "0"}, "limit must be between 1 and 500"),
    ({"limit": "x"}, "limit must be a number"),
    ({"partition": "x"}, "partition must be a number"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[f"{sorted(wrong.items())}" for wrong, _ in WRONG])
def test_a_wrong_filter_keeps_the_form(browser: Browser, wrong: dict[str, str], message: str) -> None:
    text = browser.get("/topics/flights/messages", 400, **{"value": "kept", "header": "a=b", **wrong})
    assert re.search(f'<p class="error" role="alert">[^<]*{message}', text)
    assert "<h1>Messages of flights</h1>" in text
    assert 'name="value" value="kept"' in text
    assert 'name="header" value="a=b"' in text
    for name in ("json", "key", "at"):
        if name in wrong:
            assert f'name="{name}" value="{wrong[name]}"' in text


def test_a_partition_that_does_not_exist_keeps_the_form(browser: Browser) -> None:
    text = browser.get("/topics/flights/messages", 404, partition="9", value="kept")
    assert "flights has no partition 9." in text
    assert 'name="value" value="kept"' in text


# Nothing to show.


def test_empty_lists_are_sentences(browse: Browse) -> None:
    with EmbeddedBroker() as empty:
        browser = browse(broker_of_console=Broker(empty.bootstrap_servers))
        assert "The cluster has no topics yet." in browser.get("/topics")
        assert "No topic matches." in browser.get("/topics", q="x")
        assert "The cluster has no groups yet." in browser.get("/groups")
        assert "No group matches." in browser.get("/groups", q="x")
        with Admin(bootstrap_servers=empty.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("empty", 2, 1)]).check()
        assert "The topic has no messages." in browser.get("/topics/empty/messages")
        assert "The partition has no messages." in browser.get("/topics/empty/messages", partition="1")
        for path in ("/users", "/quotas", "/transactions"):
            assert 'class="error"' not in browser.get(path)


def test_a_search_without_a_match_says_so(browser: Browser) -> None:
    assert "No message matches: 30 read of 30." in browser.get("/topics/flights/messages", value="nowhere")
    text = browser.get("/topics/flights/messages", start="offset", at="1000")
    assert "There are no messages from there on" in text


def test_a_cluster_without_authorizer_says_so(browse: Browse) -> None:
    with EmbeddedBroker() as open_broker:
        browser = browse(broker_of_console=Broker(open_broker.bootstrap_servers))
        text = browser.get("/acls")
        assert "This cluster has no authorizer, so there are no ACLs" in text
        assert "Error" not in text
