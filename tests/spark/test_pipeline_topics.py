"""Topics that a dry run of a pipeline looks up, without Spark: plans as Spark Connect encodes them, brokers as they are."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.pipelines.output import Sink
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.sql.connect.proto import relations_pb2 as pb

from ottla import Admin, NewTopic
from ottla.spark.pipelines.definitions import Definitions
from ottla.spark.pipelines.project import InvalidProject
from ottla.spark.pipelines.topics import TopicRead, check_topics, topic_reads
from ottla.testing import EmbeddedBroker

HERE = SourceCodeLocation("to_topic.py", 1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker that creates no topics by itself."""
    with EmbeddedBroker({"auto.create.topics.enable": "false"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2)]).check()
        yield broker.bootstrap_servers


def read(options: dict[str, str], *, name: str = "ottla", is_streaming: bool = True) -> Any:
    source = pb.Read.DataSource(format=name, options=options)
    return pb.Relation(read=pb.Read(data_source=source, is_streaming=is_streaming))


class Frame:
    """Result of a flow, as far as it is looked at."""

    def __init__(self, relation: Any) -> None:
        self._plan = self
        self._relation = relation

    def plan(self, client: object) -> Any:
        assert client == "client"
        return self._relation


def defined(relation: Any = None, **sink: str) -> Definitions:
    definitions = Definitions()
    if relation is not None:
        definitions.frames["bronze"] = Frame(relation)
    if sink:
        options = {name.replace("_", "."): value for name, value in sink.items()}
        definitions.outputs["large"] = Sink("large", None, HERE, "ottla", options)
    return definitions


def test_reads_are_found_wherever_they_stand_in_a_plan() -> None:
    first, second = read({"subscribe": "a"}), read({"subscribe": "b"}, is_streaming=False)
    other = read({"path": "/data"}, name="parquet")
    joined = pb.Relation(join=pb.Join(left=pb.Relation(filter=pb.Filter(input=first)), right=second))
    plan = pb.Relation(set_op=pb.SetOperation(left_input=joined, right_input=other))
    assert list(topic_reads(plan)) == [TopicRead({"subscribe": "a"}, True), TopicRead({"subscribe": "b"}, False)]


def test_topics_that_exist_pass(servers: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": "orders"}
    check_topics(defined(read(options), kafka_bootstrap_servers=servers, topic="orders"), "client")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "ordres"}, "flow bronze cannot read: topic ordres does not exist"),
        ({"assign": '{"orders": [0, 7]}'}, "flow bronze cannot read: topic orders has no partition 7"),
        ({"subscribe": "orders", "startingOfset": "1"}, "flow bronze cannot read: startingOfset is not an option"),
    ],
)
def test_a_topic_that_does_not_exist_is_named_with_its_flow(
    servers: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidProject) as raised:
        check_topics(defined(read({"kafka.bootstrap.servers": servers, **options})), "client")
    assert str(raised.value).startswith(message)


def test_a_sink_s_topic_may_be_missing_only_where_brokers_create_topics(servers: str) -> None:
    with pytest.raises(InvalidProject, match=r"^sink large cannot write: topic .*auto\.create\.topics\.enable=false"):
        check_topics(defined(kafka_bootstrap_servers=servers, topic="large-orders"), "client")
    with EmbeddedBroker() as creating:
        check_topics(defined(kafka_bootstrap_servers=creating.bootstrap_servers, topic="large-orders"), "client")
