"""The performance tools, on both brokers: what they send and read, and the form of what they say."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla import Admin, Consumer, NewTopic, TopicPartition
from ottla.cli.kafka.latencies import Latencies
from ottla.cli.main import main

from .conftest import Produce, fresh


def run(bootstrap_servers: str, command: str, *words: str) -> Result:
    return CliRunner().invoke(main, [command, "--bootstrap-server", bootstrap_servers, *words])


def records_in(bootstrap_servers: str, topic: str, isolation: str = "read_uncommitted") -> list[bytes | None]:
    with Consumer(bootstrap_servers=bootstrap_servers, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(2)])
        consumer.seek_to_beginning()
        values = []
        while records := consumer.consume(1000, timeout=0.7):
            values += [record.value for record in records]
        return values


SUMMARY = (
    r"{count} {what}, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n"
)


def test_produce(bootstrap_servers: str, topic: str) -> None:
    words = ["--topic", topic, "--num-records", "3000", "--throughput", "-1", "--record-size", "50"]
    result = run(bootstrap_servers, "producer-perf-test", *words)
    assert result.exit_code == 0, result.output
    assert re.fullmatch(SUMMARY.format(count=3000, what="records sent"), result.stdout)
    values = records_in(bootstrap_servers, topic)
    assert (len(values), {len(value or b"") for value in values}) == (3000, {50})


def test_produce_with_a_warm_up_and_a_limit(bootstrap_servers: str, topic: str) -> None:
    words = ["--topic", topic, "--num-records", "400", "--throughput", "1000", "--payload-monotonic"]
    result = run(bootstrap_servers, "producer-perf-test", *words, "--warmup-records", "100", "--print-metrics")
    first, whole, rest, blank, titles, *metrics = result.stdout.splitlines()
    assert first.startswith("Warmup first 100 records.")
    assert (blank, titles.split()) == ("", ["Metric", "Name", "Value"])
    assert re.fullmatch(SUMMARY.format(count=400, what="records sent"), whole + "\n")
    assert re.fullmatch(SUMMARY.format(count=300, what="steady state records sent"), rest + "\n")
    rate = re.search(r"([\d.]+) records/sec", whole)
    assert rate is not None
    assert float(rate[1]) < 1100
    assert any(
        re.match(r"producer-metrics:record-send-total:\{client-id=perf-producer-client\} +: 400\.000", line)
        for line in metrics
    )
    assert sorted(int(value or b"") for value in records_in(bootstrap_servers, topic)) == list(range(400))


def records_of_a_test(bootstrap_servers: str, *words: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values that `producer-perf-test` writes to a new topic of one partition."""
    topic = fresh()
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    words = ("--topic", topic, "--num-records", "40", "--throughput", "-1", *words)
    assert run(bootstrap_servers, "producer-perf-test", *words).exit_code == 0
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        records: list[tuple[bytes | None, bytes | None]] = []
        while len(records) < 40:
            records += [(record.key, record.value) for record in consumer.consume(40, timeout=5)]
    return records


def test_producer_perf_test_sends_null_keys_without_a_distribution(bootstrap_servers: str) -> None:
    records = records_of_a_test(bootstrap_servers, "--record-size", "5")
    assert {key for key, _ in records} == {None}


def test_producer_perf_test_range_distribution_sends_keys_round_robin(bootstrap_servers: str) -> None:
    words = ["--payload-monotonic", "--key-distribution", "range", "--record-key-range", "3"]
    records = records_of_a_test(bootstrap_servers, *words)
    assert records == [(b"%d" % (number % 3), b"%d" % number) for number in range(40)]


def test_producer_perf_test_random_distribution_is_repeated_with_the_same_seed(bootstrap_servers: str) -> None:
    words = ["--record-size", "5", "--key-distribution", "random", "--record-key-range", "5", "--random-seed"]
    first, again, other = (records_of_a_test(bootstrap_servers, *words, seed) for seed in ("7", "7", "-8"))
    assert {int(key or b"-1") for key, _ in first} == set(range(5))
    assert first == again
    assert [key for key, _ in first] != [key for key, _ in other]
    assert {value for _, value in first} != {value for _, value in other}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--record-key-range", "0"], "--record-key-range should be greater than zero."),
        (
            ["--key-distribution", "range"],
            "--record-key-range is required when --key-distribution is 'range' or 'random'.",
        ),
        (
            ["--record-key-range", "3"],
            "--key-distribution must be 'range' or 'random' when --record-key-range is specified.",
        ),
        (["--key-distribution", "RANGE", "--record-key-range", "3"], "'RANGE' is not one of 'none', 'range', 'random'"),
        (["--key-distribution", "range", "--record-key-range", "2147483648"], "2147483648 is not in the range"),
        (["--random-seed", "9223372036854775808"], "9223372036854775808 is not in the range"),
    ],
)
def test_producer_perf_test_refuses_a_range_without_distribution_and_the_reverse(words: list[str], error: str) -> None:
    words = ["--topic", "t", "--num-records", "1", "--throughput", "-1", "--record-size", "1", *words]
    result = run("127.0.0.1:1", "producer-perf-test", *words)
    assert result.exit_code == 2
    assert error in result.stderr


def test_steady_state_is_printed_with_its_first_interval(bootstrap_servers: str, topic: str) -> None:
    words = ["--topic", topic, "--num-records", "300", "--throughput", "1000", "--record-size", "5"]
    result = run(
        bootstrap_servers, "producer-perf-test", *words, "--warmup-records", "50", "--reporting-interval", "90"
    )
    first, *windows = result.stdout.splitlines()
    assert first.startswith("Warmup")
    windows.remove("In steady state.")  # behind windows of the warm-up, on a slow machine
    window = r"\d+ records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency\."
    assert all(re.fullmatch(window, line) for line in windows[:-2])
    assert windows[-2].startswith("300 records sent, ")
    assert windows[-1].startswith("250 steady state records sent, ")


def test_produce_in_transactions_from_a_file(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_text("one\ntwo\n", encoding="utf-8")
    words = ["--topic", topic, "--num-records", "500", "--throughput", "-1", "--payload-file", str(file), "--json"]
    result = run(bootstrap_servers, "producer-perf-test", *words, "--transaction-duration-ms", "1")
    assert json.loads(result.stdout)["records"] == 500
    values = records_in(bootstrap_servers, topic, "read_committed")
    assert (len(values), set(values)) == (500, {b"one", b"two"})


def test_consume(bootstrap_servers: str, topic: str, produce: Produce) -> None:
    produce(topic, 300)
    result = run(bootstrap_servers, "consumer-perf-test", "--topic", topic, "--num-records", "300")
    assert result.exit_code == 0, result.output
    titles, figures = result.stdout.splitlines()
    assert titles == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    cells = figures.split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", cells[0])
    assert cells[4] == "300"
    words = ["--topic", topic, "--messages", "999", "--timeout", "500", "--hide-header", "--json"]
    less = run(bootstrap_servers, "consumer-perf-test", *words)
    assert json.loads(less.stdout)["data_consumed_in_nmsg"] == 300
    assert "Use --num-records instead." in less.stderr
    assert "WARNING: Exiting before consuming the expected number of records: timeout (500 ms) exceeded." in less.stderr


def test_share(bootstrap_servers: str, topic: str, share_group: str, produce: Produce, admin: Admin) -> None:
    produce(topic, 200)
    words = ["--topic", topic, "--num-records", "200", "--group", share_group, "--threads", "2"]
    words += ["--show-consumer-stats", "--show-detailed-stats", "--reporting-interval", "1", "--print-metrics"]
    result = run(bootstrap_servers, "share-consumer-perf-test", *words)
    assert result.exit_code == 0, result.output
    titles, *progress, first, second, figures = result.stdout.partition("\n\n")[0].splitlines()
    assert titles.endswith("data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms")
    assert all(re.search(r", \d+ for share consumer [12]$", line) for line in progress)
    for number, line in enumerate((first, second), 1):
        client = f"perf-share-consumer-client-{number}"
        assert line.startswith(f"Share consumer {number} having client id {client} consumption metrics- ")
    assert figures.split(", ")[5] == "200"
    metric = r"consumer-share-fetch-manager-metrics:records-consumed-total:\{client-id=\S+\} +: (\d+)\.000"
    assert sum(map(int, re.findall(metric, result.stdout))) == 200
    assert admin.list_share_group_offsets([share_group])[share_group][TopicPartition(topic, 0)].lag == 0


def test_end_to_end(bootstrap_servers: str) -> None:
    topic = fresh()
    words = [
        "--topic",
        topic,
        "--num-records",
        "50",
        "--producer-acks",
        "all",
        "--record-size",
        "20",
        "--num-headers",
        "2",
    ]
    result = run(bootstrap_servers, "e2e-latency", *words, "--record-header-key-size", "3", "--record-key-size", "4")
    assert result.exit_code == 0, result.output
    created, first, average, percentiles = result.stdout.splitlines()
    assert created.startswith(f'Topic "{topic}" does not exist.')
    assert re.fullmatch(r"0\t[\d.]+", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", percentiles)
    again = run(bootstrap_servers, "e2e-latency", *words, "--record-header-size", "-1", "--json")
    assert json.loads(again.stdout)["records"] == 50


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("producer-perf-test", ["--record-size", "1", "--payload-monotonic"], "exactly one of --record-size"),
        ("producer-perf-test", ["--record-size", "1", "--warmup-records", "10"], "--warmup-records must be less than"),
        ("consumer-perf-test", ["--include", "x"], "exactly one of --topic and --include"),
        ("consumer-perf-test", [], "--num-records is missing"),
        ("e2e-latency", ["--producer-acks", "0", "--record-size", "1"], "'0' is not one of"),
        ("e2e-latency", ["--producer-acks", "1", "--record-size", "-1"], "-1 is not in the range"),
    ],
)
def test_wrong_usage(bootstrap_servers: str, command: str, words: list[str], why: str) -> None:
    required_options = {
        "producer-perf-test": ["--num-records", "10", "--throughput", "-1"],
        "e2e-latency": ["--num-records", "1"],
    }
    result = run(bootstrap_servers, command, "--topic", "t", *required_options.get(command, []), *words)
    assert result.exit_code == 2
    assert why in result.stderr


def test_quantiles() -> None:
    latencies = Latencies()
    assert latencies.quantiles((0.5, 0.99)) == [0, 0]
    for milliseconds in range(1, 101):
        latencies.add(milliseconds + 0.5)
    assert latencies.quantiles((0.5, 0.95, 0.99, 0.999)) == [50, 95, 99, 100]
    assert (latencies.average_ms, latencies.most_ms) == (51.0, 100.5)
