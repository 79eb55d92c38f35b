"""Sources of a broker's config values, and messages about wrong ones."""

from pathlib import Path

import pytest

from ottla.broker.cluster.following import FollowerConfig
from ottla.broker.config import broker_config, read_file, variable_of
from ottla.metadata.configs import InvalidConfig
from ottla.properties import read_properties
from ottla.replication.follower.fetching import FetchLimits


def test_options_go_before_the_environment_and_the_environment_before_the_file() -> None:
    file = {"log.retention.ms": "1", "log.segment.bytes": "1048577", "num.partitions": "3"}
    environment = {"OTTLA_LOG_RETENTION_MS": "2", "OTTLA_NUM_PARTITIONS": "4", "HOME": "/"}
    config = broker_config(file, environment, ["log.retention.ms=3"])
    assert (config["log.retention.ms"], config["num.partitions"], config["log.segment.bytes"]) == (3, 4, 1048577)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match=r"^unknown config log\.retention\.mss; did you mean log\.retention\.ms\?$"):
        broker_config(options=["log.retention.mss=3"])
    with pytest.raises(
        InvalidConfig, match=r"^unknown environment variable OTTLA_NUM_PARTITION; did you mean OTTLA_NUM"
    ):
        broker_config(environment={"OTTLA_NUM_PARTITION": "3"})


def test_the_super_users_of_a_file_are_known_and_suggest_nothing_else() -> None:
    config = broker_config({"super.users": "User:ada"}, {"OTTLA_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true"})
    assert config.static["super.users"] == "User:ada"
    with pytest.raises(InvalidConfig, match=r"^unknown config super\.user; did you mean super\.users\?$"):
        broker_config(options=["super.user=User:ada"])


def test_the_variables_of_the_build_are_not_configs() -> None:
    assert broker_config(environment={"OTTLA_COMPILE": "0"}).node_id == 1


@pytest.mark.parametrize("option", ["log.retention.ms", "=3"])
def test_an_option_without_a_name_or_value_is_refused(option: str) -> None:
    with pytest.raises(InvalidConfig, match=r"^-o takes name=value"):
        broker_config(options=[option])


def test_an_invalid_value_is_refused_with_kafkas_message() -> None:
    with pytest.raises(
        InvalidConfig, match=r"^Invalid value x for configuration log\.segment\.bytes: Not a number of type"
    ):
        broker_config(options=["log.segment.bytes=x"])


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! another\n\na=1\n b : 2 \nc 3\nd\ne=x\\\n   y\\\n   z\npath=C:\\\\tmp\n"
        "k\\=ey=v\\u0041\\tw\nf==\na=9\nlast=\\"
    )
    assert read_properties(text) == {
        "a": "9",
        "b": "2 ",
        "c": "3",
        "d": "",
        "e": "xyz",
        "path": "C:\\tmp",
        "k=ey": "vA\tw",
        "f": "=",
        "last": "",
    }


def test_a_file_that_cannot_be_read_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"^cannot read .*none: No such file or directory$"):
        read_file(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match=r"it is not UTF-8 text$"):
        read_file(tmp_path / "bad")


def test_a_server_properties_of_kafka_is_taken() -> None:
    config = broker_config(
        read_properties(
            "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.voters=7@127.0.0.1:9093\n"
            "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nlog.dirs=/a,/b\n"
            "listener.name.plaintext.connections.max.reauth.ms=5\n"
        )
    )
    assert config.node_id == 7
    assert config.log_dirs == ["/a", "/b"]
    assert config.metadata_log_dir == "/a"
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.advertised_listeners == []


def test_defaults_are_kafkas() -> None:
    config = broker_config()
    assert config.log_dirs == ["/tmp/kafka-logs"]
    assert [(listener.host, listener.port, listener.protocol) for listener in config.listeners] == [
        ("", 9092, "PLAINTEXT")
    ]
    assert config.integer("group.initial.rebalance.delay.ms") == 3000
    assert broker_config(options=["broker.id=4"]).node_id == 4


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        ("127.0.0.1:9092", "a listener is NAME://host:port"),
        ("PLAINTEXT://127.0.0.1:99999", "a listener is NAME://host:port"),
        ("FOO://:1", "No security protocol defined for listener FOO"),
        ("PLAINTEXT://:1,PLAINTEXT://:2", "Each listener must have a different name"),
        ("", "Configuration 'listeners' must not be empty"),
    ],
)
def test_a_malformed_listener_is_refused(listeners: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        broker_config(options=[f"listeners={listeners}"])


def test_an_ipv6_listener_keeps_its_brackets() -> None:
    (listener,) = broker_config(options=["listeners=PLAINTEXT://[::1]:9092"]).listeners
    assert (listener.host, listener.port, str(listener)) == ("::1", 9092, "PLAINTEXT://[::1]:9092")


def test_the_variable_of_a_config() -> None:
    assert variable_of("log.retention.ms") == "OTTLA_LOG_RETENTION_MS"


def test_the_configs_of_followers() -> None:
    options = [
        "num.replica.fetchers=2",
        "replica.socket.timeout.ms=3000",
        "replica.fetch.min.bytes=4",
        "replica.fetch.wait.max.ms=600",
        "replica.fetch.max.bytes=6000",
        "replica.fetch.response.max.bytes=7000",
        "replica.fetch.backoff.ms=8",
    ]
    config = FollowerConfig.of(broker_config(options=options))
    limits = FetchLimits(min_bytes=4, max_wait_ms=600, partition_bytes=6000, response_bytes=7000, backoff_ms=8)
    assert config == FollowerConfig(fetchers=2, timeout_ms=3000, limits=limits)
