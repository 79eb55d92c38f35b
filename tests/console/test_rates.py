"""Rates and histories: series, differences of looks, and the sampler against a broker."""

import asyncio
from dataclasses import dataclass

import pytest

from ottla import Admin, NewTopic, Producer, TopicPartition
from ottla.console.clusters import Cluster
from ottla.console.sampler import Sampler, turn
from ottla.console.series import Histories, Progress, Series
from ottla.console.settings import ClusterAccess
from ottla.protocol.messages.metadata import MetadataResponse
from tests.console import Broker
from tests.console.browser import Browse


@dataclass
class Clock:
    """Clock that a test sets."""

    ms: int = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.ms


def test_a_series_keeps_its_newest_points() -> None:
    series = Series(most=3)
    assert series.latest is None
    for number in range(9):
        series.add(number, number * 2)
    series.add(9, 18)
    assert series.points() == [(7, 14), (8, 16), (9, 18)]
    assert series.points(after_ms=8) == [(9, 18)]
    assert series.latest == (9, 18)


def test_histories_are_bounded_and_watched_names_come_first() -> None:
    histories = Histories(2)
    for name in ("a", "b", "c"):
        histories.add(name, 1, 1.0)
    assert histories.points("a") == [(1, 1.0)]
    assert histories.points("c") == []
    histories.watch("c")  # takes the room of a
    histories.add("c", 2, 2.0)
    assert (histories.points("a"), histories.points("c")) == ([], [(2, 2.0)])
    histories.watch("b")
    histories.watch("d")  # takes the room of c, which was watched before b
    histories.add("c", 3, 3.0)
    assert histories.points("c") == []
    assert histories.watched(1) == ["d"]
    histories.keep(["b"])
    assert histories.latest_ms("b") == 1


def test_rates_are_differences_of_two_looks() -> None:
    progress = Progress()
    assert progress.look("t", 1000, {0: 10, 1: 5}) is None
    assert progress.rate("t") is None
    assert progress.look("t", 3000, {0: 30, 1: 5}) == 10
    assert progress.look("t", 4000, {0: 0, 1: 6, 2: 100}) == 1  # emptied or recreated, and new: unknown before
    progress.look("u", 1000, {0: 0})
    progress.look("u", 2000, {0: 4})
    assert progress.total == 5
    progress.keep(["u"])
    assert progress.total == 4
    progress.clear()
    assert progress.look("u", 9000, {0: 9000}) is None


def test_a_large_cluster_is_looked_at_in_turns() -> None:
    weights = {f"t{number}": 3 for number in range(5)}
    first = turn(weights, "", 7)
    second = turn(weights, first[-1], 7)
    third = turn(weights, second[-1], 7)
    assert (first, second, third) == (["t0", "t1"], ["t2", "t3"], ["t4", "t0"])
    assert turn({"large": 100}, "", 7) == ["large"]
    assert turn(weights, "", 100) == sorted(weights)
    assert turn({}, "x", 7) == []


def test_a_look_measures_the_cluster(broker: Broker, admin: Admin) -> None:
    admin.create_topics([NewTopic("measured", 2, 1)]).check()
    clock = Clock()

    def write(count: int) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(count):
                producer.produce("measured", b"x" * 100, partition=number % 2)

    async def looks() -> Cluster:
        access = ClusterAccess("test", {"bootstrap.servers": broker.bootstrap_servers}, ())
        cluster = Cluster(access, clock)
        try:
            for count, committed in ((10, 1), (90, 5)):
                await asyncio.to_thread(write, count)
                offsets = {TopicPartition("measured", 0): committed}
                await asyncio.to_thread(admin.alter_consumer_group_offsets, "meter", offsets)
                clock.ms += 10_000
                await cluster.sampler.look()
        finally:
            await cluster.close()
        return cluster

    sampler = asyncio.run(looks()).sampler
    assert sampler.ends.rate("measured") == 9.0
    assert sampler.topic_rates.points("measured") == [(1_700_000_020_000, 9.0)]
    assert sampler.committed.rate("meter") == 0.4
    assert [lag for _, lag in sampler.lags.points("meter")] == [4, 45]
    sizes = [size for _, size in sampler.topic_sizes.points("measured")]
    assert sizes[1] - sizes[0] > 9_000
    assert sampler.sizes.rate("measured") == pytest.approx((sizes[1] - sizes[0]) / 10)
    assert sampler.messages_in.latest is not None
    assert sampler.messages_in.latest[1] >= 9.0


def test_the_charts_have_numbers(browse: Browse, flights: None, admin: Admin) -> None:
    admin.alter_consumer_group_offsets("charted-too", {TopicPartition("flights", 0): 4})
    client = browse().client
    assert set(client.get("/c/test/rates").json()["series"]) == {"messages_in", "messages_out", "bytes_in"}
    assert set(client.get("/c/test/topics/flights/growth").json()["series"]) == {"messages_in", "size"}
    assert client.get("/c/test/topics/no-such-topic/growth").json()["series"] == {"messages_in": [], "size": []}
    ((time_ms, lag),) = client.get("/c/test/group/lag?id=charted-too").json()["series"]["lag"]
    assert lag == 6
    assert client.get(f"/c/test/group/lag?id=charted-too&after={time_ms}").json()["series"]["lag"] == []


def test_the_sampler_runs_while_pages_are_visited(broker: Broker, flights: None) -> None:
    clock = Clock()

    async def visited() -> tuple[bool, bool]:
        access = ClusterAccess("test", {"bootstrap.servers": broker.bootstrap_servers}, ())
        cluster = Cluster(access, clock)
        sampler = cluster.sampler
        try:
            sampler.visit()
            async with asyncio.timeout(20):
                while not sampler.looks:
                    await asyncio.sleep(0.05)
            is_running = sampler.is_running and sampler.topic_sizes.latest_ms("flights") is not None
            clock.ms += 301_000
            async with asyncio.timeout(20):
                while sampler.is_running:
                    await asyncio.sleep(0.05)
            sampler.visit()
            return is_running, sampler.is_running
        finally:
            await cluster.close()

    assert asyncio.run(visited()) == (True, True)


def test_an_error_of_a_look_is_logged_and_the_next_visit_starts_again(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing() -> bool:
        access = ClusterAccess("test", {"bootstrap.servers": broker.bootstrap_servers}, ())
        cluster = Cluster(access, Clock())
        sampler = Sampler(Clock(), lambda: cluster.admin, broken)
        try:
            sampler.visit()
            async with asyncio.timeout(20):
                while sampler.is_running:
                    await asyncio.sleep(0.05)
            sampler.visit()
            return sampler.is_running
        finally:
            await sampler.close()
            await cluster.close()

    async def broken() -> MetadataResponse:
        raise ZeroDivisionError

    assert asyncio.run(failing())
    assert "until the next visit" in caplog.text
