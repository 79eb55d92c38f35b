"""Everything that DescribeConfigs says of a broker, a topic, a group and a client-metrics subscription without own configs.

described_configs.tsv is what Apache Kafka 4.4.0 said: `python -m tests.conformance.described_configs HOST:PORT` writes it.
"""

import sys
import uuid
from pathlib import Path
from typing import Final

from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.conformance.conftest import Wire

FILE: Final = Path(__file__).with_name("described_configs.tsv")
DEFAULT: Final = 5
RESOURCES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}


def everything(wire: Wire) -> dict[tuple[str, str], str]:
    """A line for each config, by resource and name: type, read-only, sensitive, documented, and of those that are not set
    the value and its synonyms."""
    node = str(wire.send(DescribeClusterRequest(), 0).brokers[0].broker_id)
    topic = f"t-{uuid.uuid4().hex[:12]}"
    new_topic = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    wire.send(CreateTopicsRequest(topics=[new_topic], timeout_ms=10_000), 7)
    names = {"topic": topic, "broker": node, "client-metrics": f"m-{topic}", "group": f"g-{topic}"}
    lines = {}
    for resource, kind in RESOURCES.items():
        asked = DescribeConfigsResource(resource_type=kind, resource_name=names[resource], configuration_keys=None)
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
        result = wire.send(request, 4).results[0]
        while result.error_code:  # Apache Kafka answers before all its parts know the topic
            result = wire.send(request, 4).results[0]
        for config in result.configs:
            documented = "documented" if config.documentation else config.documentation
            fields = [config.config_type, config.read_only, config.is_sensitive, documented]
            if config.config_source == DEFAULT:
                fields.append(config.value)
                fields.append(
                    " ".join(f"{synonym.name}={synonym.value}@{synonym.source}" for synonym in config.synonyms)
                )
            lines[resource, config.name] = "\t".join(map(str, fields))
    return lines


def recorded() -> dict[tuple[str, str], str]:
    """Return the recorded lines."""
    lines = (line.split("\t", 2) for line in FILE.read_text(encoding="utf-8").splitlines())
    return {(resource, name): rest for resource, name, rest in lines}


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    wire = Wire((host, int(port)), is_kafka=True)
    lines = sorted(f"{resource}\t{name}\t{rest}\n" for (resource, name), rest in everything(wire).items())
    FILE.write_text("".join(lines), encoding="utf-8")
    wire.close()


if __name__ == "__main__":
    main()
