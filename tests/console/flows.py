"""Actions of the tests on a console in Chromium, on any cluster with the topic `flights` and the group `board`."""

import time
from typing import Any

from ottla import (
    Admin,
    ConfigChange,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from tests.console import Broker
from tests.console.chromium import errors, resize, text_of, wait

from selenium.webdriver.common.by import By  # isort: skip  (after the check for selenium)
from selenium.webdriver.support.ui import Select  # isort: skip


def open_page(chromium: Any, url: str) -> None:
    """Open a page wide and light, and narrow and dark: it fits, all fields have labels, and there are no errors."""
    errors(chromium)
    for width, scheme in ((1200, "light"), (390, "dark")):
        resize(chromium, width, scheme)
        chromium.get(url)
        assert chromium.find_elements(By.TAG_NAME, "h1")
        assert "Error" not in chromium.title
        assert chromium.execute_script("return document.documentElement.scrollWidth <= innerWidth"), width
        unnamed = """return [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
            .filter((field) => !field.labels.length && !field.ariaLabel).map((field) => field.name)"""
        assert chromium.execute_script(unnamed) == []
    assert errors(chromium) == []


def follow_the_tail(chromium: Any, address: str, broker: Broker) -> None:
    """Open the live tail of a new topic, and produce to it."""
    resize(chromium, 1200)
    with Admin(broker.client) as admin:
        admin.create_topics([NewTopic("followed", 1, broker.replicas)]).check()
        wait(chromium, lambda: "followed" in admin.list_topics())
    chromium.get(f"{address}/topics/followed/messages")
    chromium.find_element(By.ID, "tail").click()
    wait(chromium, lambda: "Live: 0 new" in text_of(chromium))
    time.sleep(1)
    with Producer(broker.client) as producer:
        for number in range(3):
            producer.produce("followed", f"<b>message {number}</b>", key="k")
    wait(chromium, lambda: "Live: 3 new" in text_of(chromium))
    assert "<b>message 2</b>" in text_of(chromium)
    chromium.find_element(By.ID, "tail").click()
    assert "stopped after 3" in text_of(chromium)
    assert errors(chromium) == []


def reset_offsets(chromium: Any, address: str, broker: Broker) -> None:
    """Reset the group by the forms."""
    resize(chromium, 390)
    chromium.get(f"{address}/group?id=board")
    chromium.find_element(By.LINK_TEXT, "Reset offsets").click()
    Select(chromium.find_element(By.NAME, "to")).select_by_value("shift")
    chromium.find_element(By.NAME, "value").send_keys("-3")
    chromium.find_element(By.CSS_SELECTOR, "main button.primary").click()
    wait(chromium, lambda: "ottla consumer-groups" in text_of(chromium))
    chromium.find_element(By.CSS_SELECTOR, "main button.danger").click()
    wait(chromium, lambda: "The offsets of 1 partitions were reset." in text_of(chromium))
    with Admin(broker.client) as admin:
        offsets = admin.list_consumer_group_offsets(["board"])["board"]
    assert offsets[TopicPartition("flights", 0)].offset == 1
    assert errors(chromium) == []


def watch_a_share_group(chromium: Any, address: str, broker: Broker) -> None:
    """Open the page of a share group with a member."""
    resize(chromium, 1200)
    earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
    with Admin(broker.client) as admin, ShareConsumer(broker.client, group_id="watched") as consumer:
        admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, "watched"): earliest}).check()
        consumer.subscribe(["flights"])
        deadline = time.monotonic() + 20
        while len(admin.list_share_group_offsets(["watched"])["watched"]) < 3:
            assert time.monotonic() < deadline
            consumer.poll(timeout=0.2)
        while any(entry.lag is None for entry in admin.list_share_group_offsets(["watched"])["watched"].values()):
            assert time.monotonic() < deadline
            consumer.poll(timeout=0.2)
        chromium.get(f"{address}/group?id=watched")
        assert "ACKNOWLEDGED AHEAD" in text_of(chromium).upper()
        assert consumer.member_id in text_of(chromium)
        wait(chromium, lambda: "now, at most" in text_of(chromium))
    assert errors(chromium) == []


def see_rates(chromium: Any, address: str, broker: Broker) -> None:
    """Open the overview until it has drawn a rate."""
    resize(chromium, 1200)
    chromium.get(address)
    path = "return document.querySelector('[data-series=messages_in] path').getAttribute('d')"
    with Admin(broker.client) as admin, Producer(broker.client) as producer:
        admin.create_topics([NewTopic("counted", 1, broker.replicas)]).check()
        wait(chromium, lambda: "counted" in admin.list_topics())

        def drawn() -> bool:
            producer.produce("counted", "x")
            shown = chromium.execute_script("return document.querySelector('[data-latest=messages_in]').textContent")
            return "L" in chromium.execute_script(path) and shown not in ("–", "0/s")

        wait(chromium, drawn, 30)
    assert errors(chromium) == []
