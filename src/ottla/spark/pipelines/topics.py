"""Check of the topics that a project reads and writes, for a dry run.

Spark's own dry run resolves tables and columns without contacting sources, so a misspelt topic would be noticed in the first
real run only. Topics of sources are in the plans of flows, topics of sinks in their definitions; SQL files are not checked.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.pipelines.output import Sink

from ottla.client.errors import KafkaError, UnknownTopic
from ottla.spark.connections import cluster_of
from ottla.spark.offsets import InvalidOption
from ottla.spark.options import sink_options, source_options
from ottla.spark.pipelines.definitions import Definitions
from ottla.spark.pipelines.project import InvalidProject
from ottla.spark.reading import TopicReader

FORMAT = "ottla"


class TopicRead(NamedTuple):
    """Read of format("ottla") in a plan."""

    options: Mapping[str, str]
    is_streaming: bool


def topic_reads(message: Any) -> Iterator[TopicRead]:
    """Yield the reads of topics in a Spark Connect plan (a protobuf message), in the order of the plan."""
    for field, value in message.ListFields():
        if field.name == "read" and value.WhichOneof("read_type") == "data_source":
            if value.data_source.format == FORMAT:
                yield TopicRead(dict(value.data_source.options), value.is_streaming)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for child in value if isinstance(value, list) or hasattr(value, "add") else [value]:
                yield from topic_reads(child)


def check_topics(defined: Definitions, client: Any) -> None:
    """Look up the topics of a project's flows and sinks. Raises InvalidProject for one that does not exist.

    client  Spark Connect client of the session, which encodes the plans
    """
    for flow, frame in defined.frames.items():
        for read in topic_reads(frame._plan.plan(client)):
            try:
                options = source_options(read.options, stream=read.is_streaming)
                TopicReader(options, pa.schema([])).current_partitions()
            except (InvalidOption, KafkaError) as error:
                raise InvalidProject(f"flow {flow} cannot read: {error}") from None
    for output in defined.outputs.values():
        if isinstance(output, Sink) and output.format == FORMAT:
            _check_sink(output)


def _check_sink(sink: Sink) -> None:
    """Check that the topic of a sink exists or can be created by the brokers. Raises InvalidProject."""
    try:
        options = sink_options({name: str(value) for name, value in sink.options.items()}, stream=True)
        if options.topic is None:
            return
        cluster = cluster_of(options.config)
        try:
            cluster.topic(options.topic)
        except UnknownTopic as error:
            if not cluster.creates_topics():
                raise InvalidProject(
                    f"sink {sink.name} cannot write: {error}, and brokers do not create it (auto.create.topics.enable=false)"
                ) from None
    except (InvalidOption, KafkaError) as error:
        raise InvalidProject(f"sink {sink.name} cannot write: {error}") from None
