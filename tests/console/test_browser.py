"""The console in a real Chromium: every page without errors of the browser, live tail, reset, share group, narrow screens."""

import time
from typing import Any

import pytest

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
from tests.console.chromium import MARKS, PAGES, errors, resize, serving, text_of, wait

from selenium.webdriver.common.by import By  # isort: skip  (after the check for selenium)
from selenium.webdriver.support.ui import Select  # isort: skip

pytestmark = MARKS
_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_fits_and_has_no_errors(chromium: Any, address: str, path: str) -> None:
    errors(chromium)
    for width, scheme in ((1200, "light"), (390, "dark")):
        resize(chromium, width, scheme)
        chromium.get(address + path)
        assert chromium.find_elements(By.TAG_NAME, "h1")
        assert "Error" not in chromium.title
        assert chromium.execute_script("return document.documentElement.scrollWidth <= innerWidth"), width
        unnamed = """return [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
            .filter((field) => !field.labels.length && !field.ariaLabel).map((field) => field.name)"""
        assert chromium.execute_script(unnamed) == []
    assert errors(chromium) == []


def test_an_inline_script_does_not_run(chromium: Any, address: str) -> None:
    chromium.get(address)
    chromium.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    )
    assert chromium.execute_script("return window.ran") is None
    assert any("Content Security Policy" in error for error in errors(chromium))


def test_the_theme_is_kept(chromium: Any, address: str) -> None:
    resize(chromium, 1200)
    background = "return getComputedStyle(document.body).backgroundColor"
    chromium.get(address)
    light = chromium.execute_script(background)
    chromium.find_element(By.ID, "theme").click()
    dark = chromium.execute_script(background)
    chromium.get(f"{address}/topics")
    assert light != dark == chromium.execute_script(background)
    chromium.delete_cookie("ottla-theme")


def test_the_keyboard_reaches_search_and_contents(chromium: Any, address: str) -> None:
    chromium.get(f"{address}/topics")
    body = chromium.find_element(By.TAG_NAME, "body")
    body.send_keys("/")
    assert chromium.switch_to.active_element.get_attribute("name") == "q"
    chromium.switch_to.active_element.send_keys("flights\n")
    wait(chromium, lambda: "1 topic" in text_of(chromium))


def test_the_live_tail_shows_new_messages(chromium: Any, address: str, broker: Broker, admin: Admin) -> None:
    resize(chromium, 1200)
    admin.create_topics([NewTopic("followed", 1, 1)]).check()
    chromium.get(f"{address}/topics/followed/messages")
    chromium.find_element(By.ID, "tail").click()
    wait(chromium, lambda: "Live: 0 new" in text_of(chromium))
    time.sleep(1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.produce("followed", f"<b>message {number}</b>", key="k")
    wait(chromium, lambda: "Live: 3 new" in text_of(chromium))
    assert "<b>message 2</b>" in text_of(chromium)
    chromium.find_element(By.ID, "tail").click()
    assert "stopped after 3" in text_of(chromium)
    assert errors(chromium) == []


def test_a_reset_by_the_forms(chromium: Any, address: str, admin: Admin) -> None:
    resize(chromium, 390)
    chromium.get(f"{address}/group?id=board")
    chromium.find_element(By.LINK_TEXT, "Reset offsets").click()
    Select(chromium.find_element(By.NAME, "to")).select_by_value("shift")
    chromium.find_element(By.NAME, "value").send_keys("-3")
    chromium.find_element(By.CSS_SELECTOR, "main button.primary").click()
    wait(chromium, lambda: "ottla consumer-groups" in text_of(chromium))
    chromium.find_element(By.CSS_SELECTOR, "main button.danger").click()
    wait(chromium, lambda: "The offsets of 1 partitions were reset." in text_of(chromium))
    offsets = admin.list_consumer_group_offsets(["board"])["board"]
    assert offsets[TopicPartition("flights", 0)].offset == 1
    assert errors(chromium) == []


def test_a_share_group_with_its_chart(chromium: Any, address: str, broker: Broker, admin: Admin) -> None:
    resize(chromium, 1200)
    earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
    admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, "watched"): earliest}).check()
    with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="watched") as consumer:
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


def test_the_overview_draws_rates(chromium: Any, address: str, broker: Broker) -> None:
    resize(chromium, 1200)
    chromium.get(address)
    path = "return document.querySelector('[data-series=messages_in] path').getAttribute('d')"
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def drawn() -> bool:
            producer.produce("flights", "counted", "AA")
            return chromium.execute_script(path).count("L") >= 1 and "0/s now" in text_of(chromium)

        wait(chromium, drawn, 30)
    assert errors(chromium) == []


def test_the_login_by_token(chromium: Any, broker: Broker) -> None:
    with serving(broker, token="correct-token") as url:
        chromium.get(f"{url}/c/test/topics?q=fli")
        field = chromium.find_element(By.NAME, "password")
        field.send_keys("wrong\n")
        wait(chromium, lambda: "Wrong user" in text_of(chromium))
        chromium.find_element(By.NAME, "password").send_keys("correct-token\n")
        wait(chromium, lambda: "1 topic" in text_of(chromium))
        assert chromium.get_cookies()[0]["httpOnly"]
    errors(chromium)


def test_ten_thousand_topics_are_listed_at_once(chromium: Any, broker: Broker) -> None:
    """The first contentful paint of a warm server. 300 ms are the goal on an idle machine; a busy one gets three times that."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        names = [f"load-{number:05}" for number in range(10_000)]
        for start in range(0, len(names), 1000):
            admin.create_topics([NewTopic(name, 1, 1) for name in names[start : start + 1000]], timeout=60).check()
        paints = []
        with serving(broker) as url:
            for _ in range(5):
                chromium.get(f"{url}/c/test/topics")
                assert "topics" in text_of(chromium)
                wait(chromium, lambda: chromium.execute_script(_PAINT) is not None)
                paints.append(round(chromium.execute_script(_PAINT)))
            print(f"first contentful paints in ms: {paints}")  # noqa: T201
        for start in range(0, len(names), 1000):
            admin.delete_topics(names[start : start + 1000], timeout=60).check()
    assert sorted(paints[1:])[len(paints[1:]) // 2] < 900
