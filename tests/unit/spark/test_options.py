"""Valid options, and the errors of invalid ones."""

import pytest

from ottla.client.errors import InvalidClientConfig
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.spark.offsets import Boundary, InvalidOption
from ottla.spark.options import has_headers, sink_options, source_options

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}


def test_defaults_of_a_batch_and_a_stream() -> None:
    batch = source_options({**SERVERS, "subscribe": "t"}, stream=False)
    assert batch.config.bootstrap_servers == (("a", 1), ("b", 2))
    assert batch.config.read_committed
    assert (batch.topics, batch.assign, batch.pattern) == (["t"], None, None)
    assert (batch.start, batch.end.time) == (Boundary("startingOffsets", time=EARLIEST), LATEST)
    assert (batch.fail_on_data_loss, batch.max_offsets, batch.min_partitions) == (True, None, None)
    assert batch.poll_timeout_ms == 120_000
    assert source_options({**SERVERS, "subscribe": "t"}, stream=True).start.time == LATEST


def test_names_have_no_case_and_topics_no_spaces() -> None:
    options = source_options(
        {
            "KAFKA.Bootstrap.Servers": "a",
            "SUBSCRIBE": " x , y,",
            "failondataloss": "FALSE",
            "MaxOffsetsPerTrigger": "7",
            "minpartitions": "3",
            "kafkaconsumer.polltimeoutms": "9",
        },
        stream=True,
    )
    assert (options.topics, options.fail_on_data_loss) == (["x", "y"], False)
    assert (options.max_offsets, options.min_partitions, options.poll_timeout_ms) == (7, 3, 9)


def test_configs_of_the_client_pass_through() -> None:
    options = {
        **SERVERS,
        "subscribe": "t",
        "kafka.fetch.max.bytes": "1000",
        "kafka.isolation.level": "read_uncommitted",
    }
    config = source_options(options, stream=False).config
    assert (config["fetch.max.bytes"], config.read_committed) == (1000, False)


def test_assignment() -> None:
    options = source_options({**SERVERS, "assign": '{"t": [2, 0], "u": [1]}'}, stream=False)
    assert options.assign == [TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("u", 1)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": ","}, "subscribe is empty"),
        ({"subscribePattern": "("}, "subscribePattern '\\('"),
        ({"assign": "[]"}, 'assign must look like {"topic": \\[0, 1\\]}, not \\[\\]'),
        ({"assign": "t"}, "is not JSON"),
        ({"assign": '{"t": 1}'}, "t has no list of partitions"),
        ({"assign": '{"t": [true]}'}, "t has no list of partitions"),
        ({"subscribe": "t", "maxOffsetsPerTrigger": "0"}, "positive whole number, not '0'"),
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            r"Trigger \(5\) is larger than max",
        ),
        ({"subscribe": "t", "maxTriggerDelay": "soon"}, "a duration like 30s or 15m, not 'soon'"),
        ({"subscribe": "t", "maxBytesPerTrigger": "0"}, "a number of bytes like 1000000 or 64m, not '0'"),
        ({"subscribe": "t", "onTopicRecreated": "ignore"}, "onTopicRecreated must be fail or restart, not 'ignore'"),
        ({"subscribe": "t", "groupOffsets": " "}, "groupOffsets is empty"),
        ({"subscribe": "t", "endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        ({"subscribe": "t", "shareGroup": ""}, "shareGroup is empty"),
        ({"subscribePattern": "t", "shareGroup": "g"}, "subscribePattern cannot be combined with shareGroup"),
        (
            {"subscribe": "t", "shareGroup": "g", "startingOffsets": "earliest"},
            "startingOffsets cannot be combined with share",
        ),
        ({"subscribe": "t", "minPartitions": "many"}, "positive whole number, not 'many'"),
        ({"subscribe": "t", "failOnDataLoss": "no"}, "failOnDataLoss must be true or false, not 'no'"),
        ({"subscribe": "t", "includeHeaders": "1"}, "includeHeaders must be true or false"),
        ({"subscribe": "t", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"subscribe": "t", "kafka.enable.auto.commit": "true"}, "offsets are stored in the query's checkpoint"),
        ({"subscribe": "t", "kafka.value.deserializer": "X"}, "values are binary columns"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "t", "bootstrap.servers": "a"}, "did you mean kafka.bootstrap.servers?"),
        ({"subscribe": "t", "zzz": "1"}, "^zzz is not an option of the ottla source$"),
        (
            {"subscribe": "t", "maxoffsetpertrigger": "1"},
            "^maxOffsetPerTrigger is not an option of the ottla source; did",
        ),
        ({"subscribe": "t", "includeheader": "1"}, "^includeHeader is not an option .*; did you mean includeHeaders.$"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        source_options({**SERVERS, **options}, stream=True)


@pytest.mark.parametrize("name", ["groupOffsets", "missingTopicTimeout", "onTopicRecreated", "shareGroup"])
def test_options_of_streams_are_refused_for_a_batch(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} is for streams"):
        source_options({**SERVERS, "subscribe": "t", name: "restart"}, stream=False)


def test_sizes_and_durations() -> None:
    limits = {"maxBytesPerTrigger": "64M", "maxTriggerDelay": "90 s", "maxRecordsPerPartition": "7"}
    options = source_options({**SERVERS, "subscribe": "t", **limits}, stream=True)
    assert (options.max_bytes, options.max_delay_ms, options.max_records) == (64 << 20, 90_000, 7)
    assert source_options({**SERVERS, "subscribe": "t"}, stream=True).max_delay_ms == 900_000


def test_client_configs_are_refused_under_the_user_s_name() -> None:
    with pytest.raises(InvalidClientConfig, match=r"did you mean kafka\.fetch\.min\.bytes\?"):
        source_options({**SERVERS, "subscribe": "t", "kafka.fetch.min.byte": "1"}, stream=False)


def test_sink() -> None:
    options = sink_options(
        {**SERVERS, "topic": "t", "checkpointLocation": "/x", "queryName": "q", "kafka.acks": "1"}, stream=False
    )
    assert (options.topic, options.config["acks"], options.config["enable.idempotence"]) == ("t", 1, False)
    assert sink_options(SERVERS, stream=False).topic is None
    with pytest.raises(InvalidOption, match="the option topic is empty"):
        sink_options({**SERVERS, "topic": " "}, stream=False)
    with pytest.raises(InvalidOption, match="subscribe is not an option of the ottla sink"):
        sink_options({**SERVERS, "subscribe": "t"}, stream=False)


def test_headers_are_asked_for() -> None:
    assert has_headers({"INCLUDEHEADERS": "True"})
    assert not has_headers({})
