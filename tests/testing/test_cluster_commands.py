"""Commands on a cluster whose brokers die."""

import json
import time
from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from ottla import Admin, NewTopic
from ottla.cli.main import main
from ottla.testing import KafkaCluster


def status(cluster: KafkaCluster, *arguments: str) -> Result:
    servers = ",".join(cluster[node].bootstrap_servers for node in (2, 3))
    return CliRunner().invoke(main, ["status", "--bootstrap-server", servers, *arguments])


def described(cluster: KafkaCluster, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["topics", "--bootstrap-server", cluster[2].bootstrap_servers, "--describe", *arguments]
    )


def test_status_shows_what_is_missing(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 3, 3), NewTopic("single", 3, 1)]).check()
    assert status(cluster, "--healthy").exit_code == 0
    cluster.kill(1)
    deadline = time.monotonic() + 20
    while any(part.leader == 1 for topic in cluster.image.topics.values() for part in topic.partitions):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    result = status(cluster, "--healthy")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "ottla: the cluster is not healthy: 1 brokers are fenced, 4 partitions are under-replicated, 1 have no leader"
    ]
    assert result.stdout.splitlines()[-1] == "2 topics, 6 partitions: 4 under-replicated, 1 without a leader"
    report: dict[str, Any] = json.loads(status(cluster, "--json").stdout)
    assert (report["fenced"], report["under_replicated"], report["leaderless"]) == (1, 4, 1)
    first = report["brokers"][0]
    assert (first["broker"], first["state"], first["leaders"], first["not_in_sync"]) == (1, "fenced", 0, 4)
    for flag, count in (("under-replicated", 4), ("unavailable", 1), ("under-min-isr", 1)):
        assert described(cluster, f"--{flag}-partitions").stdout.count("Partition: ") == count, flag
