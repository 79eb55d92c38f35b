"""Pages about topics, and what they change."""

from typing import Any

from ottla import Admin, ConfigResource, NewTopic, Producer, ResourceType, TopicPartition
from tests.console import Broker
from tests.console.browser import Browser


def test_the_overview_shows_brokers_and_totals(browser: Browser, broker: Broker, flights: None) -> None:
    text = browser.get("")
    assert broker.bootstrap_servers in text
    assert "controller" in text
    assert "all replicas are in sync" in text


def test_topics_are_found_by_a_part_of_their_name(browser: Browser, flights: None) -> None:
    text = browser.get("/topics", q="LIGHT")
    assert ">flights</a>" in text
    assert "1 topic<" in text
    assert "0 topics" in browser.get("/topics", q="no such topic")
    assert ">__" not in browser.get("/topics")


def test_the_list_has_pages(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic(f"many-{number:03}", 1, 1) for number in range(51)]).check()
    first, second = browser.get("/topics", q="many-"), browser.get("/topics", q="many-", page=2)
    assert "Page 1 of 2" in first
    assert "many-049" in first
    assert "many-050" not in first
    assert "many-050" in second
    admin.delete_topics([f"many-{number:03}" for number in range(51)]).check()


def test_a_topic_has_its_partitions_and_own_configs(browser: Browser, flights: None) -> None:
    text = browser.get("/topics/flights")
    assert "315360000000" in text
    assert text.count("/messages?partition=") == 3
    text = browser.get("/topics/flights/configs")
    own, _, defaults = text.partition("<h2>Defaults</h2>")
    assert "retention.ms" in own
    assert "dynamic topic" in own
    assert "cleanup.policy" in defaults


def test_a_topic_is_created_with_configs(browser: Browser, admin: Admin) -> None:
    browser.get("/create-topic")
    text = browser.post("/create-topic", name="made", partitions="2", replicas="", configs="cleanup.policy=compact\n")
    assert "Topic made was created." in text
    assert len(admin.describe_topics(["made"])["made"].partitions) == 2
    assert "compact" in browser.get("/create-topic", like="made")
    assert "NAME=VALUE" in browser.post("/create-topic", 400, name="made2", configs="oops")
    assert "name" in browser.post("/create-topic", 400, name="")
    assert "was created" not in browser.get("/topics")


def test_a_config_is_changed_and_reset(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("tuned", 1, 1)]).check()
    resource = ConfigResource(ResourceType.TOPIC, "tuned")
    assert "New value" in browser.get("/topics/tuned/configs/change", name="retention.ms")
    text = browser.get("/topics/tuned/configs/change", name="retention.ms", value="1000")
    assert "ottla configs --bootstrap-server" in text
    assert "--alter --entity-type topics --entity-name tuned --add-config retention.ms=1000" in text
    browser.post("/topics/tuned/configs", name="retention.ms", value="1000")
    assert admin.describe_configs([resource])[resource]["retention.ms"].value == "1000"
    assert "--delete-config retention.ms" in browser.get("/topics/tuned/configs/change", name="retention.ms", reset="1")
    browser.post("/topics/tuned/configs", name="retention.ms", reset="1")
    assert admin.describe_configs([resource])[resource]["retention.ms"].value == "604800000"
    assert "no config" in browser.get("/topics/tuned/configs/change", 404, name="nonsense")
    assert "Invalid value" in browser.post("/topics/tuned/configs", 409, name="retention.ms", value="much")


def test_a_topic_grows(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("growing", 1, 1)]).check()
    assert "now 1" in browser.get("/topics/growing/grow")
    assert "--alter --topic growing --partitions 3" in browser.get("/topics/growing/grow", partitions="3")
    assert "only grow" in browser.get("/topics/growing/grow", 400, partitions="1")
    browser.post("/topics/growing/grow", partitions="3")
    assert len(admin.describe_topics(["growing"])["growing"].partitions) == 3


def test_a_topic_is_emptied_up_to_the_shown_offsets(browser: Browser, admin: Admin, broker: Broker) -> None:
    admin.create_topics([NewTopic("full", 1, 1)]).check()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(3):
            producer.produce("full", "x")
    text = browser.get("/topics/full/empty")
    assert '"offset": 3' in text
    assert "ottla delete-records" in text
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("full", "written after the question")
    fields: dict[str, Any] = {"0": "3"}
    browser.post("/topics/full/empty", **fields)
    start = admin.list_offsets({TopicPartition("full", 0): -2})[TopicPartition("full", 0)]
    assert start.offset == 3


def test_a_topic_is_deleted(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("un.wanted", 1, 1)]).check()
    assert r"--delete --topic 'un\.wanted'" in browser.get("/topics/un.wanted/delete")
    assert "was deleted" in browser.post("/topics/un.wanted/delete")
    assert "un.wanted" not in admin.list_topics()
    assert "return to the list" in browser.get("/topics/un.wanted", 404)
