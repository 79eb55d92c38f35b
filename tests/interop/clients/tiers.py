"""The clients that are run, with their versions and compressions, and the features that they lack."""

from dataclasses import dataclass, field
from importlib import metadata

from tests.interop.clients.environments import Environment, GoProgram, Jars, Locked, NodePackage, RustProgram, Wheels

_OLDEST = "none,gzip,snappy"
_BEFORE_ZSTD = "none,gzip,snappy,lz4"
_ALL = "none,gzip,snappy,lz4,zstd"


@dataclass(frozen=True)
class Tier:
    """One row of the table.

    name      for --only
    client    what it is called in the table, with its version
    codecs    the program's fourth argument
    settings  the program's further arguments
    lacks     step: why this client cannot do it
    """

    name: str
    client: str
    environment: Environment
    codecs: str = _ALL
    settings: dict[str, str] = field(default_factory=dict)
    lacks: dict[str, str] = field(default_factory=dict)


_NO_ADMIN = {"admin": "has no admin client"}
_NO_GROUPS_IN_BROKER = {"group": "its groups live in ZooKeeper", "resume": "its groups live in ZooKeeper"}


def _clients(version: str) -> str:
    return f"org.apache.kafka:kafka-clients:{version}"


def _old_consumer(version: str, codecs: str = _BEFORE_ZSTD, admin: bool = False) -> Tier:
    sources = (
        ("PollLong", "ProducerOnly", "Contract", "CreateAndDelete")
        if admin
        else ("PollLong", "ProducerOnly", "Contract")
    )
    return Tier(
        f"java-{version}",
        f"Java client {version}",
        Jars((_clients(version), "org.slf4j:slf4j-nop:1.7.36"), sources),
        codecs,
        {"admin": "yes"} if admin else {},
        {} if admin else _NO_ADMIN,
    )


def _modern(version: str, slf4j: str) -> Tier:
    return Tier(
        f"java-{version}",
        f"Java client {version}",
        Jars(
            (_clients(version), f"org.slf4j:slf4j-nop:{slf4j}"),
            ("PollDuration", "ProducerOnly", "Contract", "CreateAndDelete"),
        ),
    )


def _kafka_python(
    release: str, version: str, codecs: str, groups: bool, admin: bool, module: str = "kafka_python"
) -> Tier:
    lacks: dict[str, str] = {}
    if not groups:
        lacks |= {"group": "no groups before 0.9", "resume": "no groups before 0.9"}
    if version == "0.8.0":
        lacks["commit"] = "its offsets live in ZooKeeper"
    if release == "1.4.7":
        lacks["admin"] = "its admin client takes no api_version"
    elif not admin:
        lacks["admin"] = "needs brokers from 0.10.1 on"
    packages = (
        f"kafka-python=={release}",
        "six",
        "python-snappy",
        "lz4",
        "zstandard",
        "crc32c",
        "xxhash",
        "setuptools",
    )
    return Tier(
        f"kafka-python-{release}-{version}",
        f"kafka-python {release}, api_version {version}",
        Wheels(packages, module),
        codecs,
        {"api_version": version} | ({"nulls": "no"} if version == "0.8.0" else {}),
        lacks,
    )


def _kafka_pythons(release: str, newest: str) -> list[Tier]:
    return [
        _kafka_python(release, "0.8.0", _OLDEST, False, False),
        _kafka_python(release, "0.8.1", _OLDEST, False, False),
        _kafka_python(release, "0.8.2", _BEFORE_ZSTD, False, False),
        _kafka_python(release, "0.9", _BEFORE_ZSTD, True, False),
        _kafka_python(release, "0.10", _BEFORE_ZSTD, True, False),
        _kafka_python(release, "0.11", _BEFORE_ZSTD, True, True),
        _kafka_python(release, "1.0", _BEFORE_ZSTD, True, True),
        _kafka_python(release, newest, _ALL if newest >= "2.1" else _BEFORE_ZSTD, True, True),
    ]


def _confluent(version: str) -> Tier:
    # From 0.10.0 on librdkafka asks for ApiVersions whatever it is told, as its documentation says: that is the newest.
    groups = version not in ("0.8.0", "0.8.2")
    lacks: dict[str, str] = {} if groups else {"group": "no groups before 0.9", "resume": "no groups before 0.9"}
    if version == "0.8.0":
        lacks["commit"] = "its offsets live in ZooKeeper"
    if version != "newest":
        lacks["admin"] = "needs ApiVersions"
    return Tier(
        f"confluent-kafka-{version}",
        f"confluent-kafka {metadata.version('confluent-kafka')}"
        + ("" if version == "newest" else f", broker.version.fallback {version}"),
        Locked("confluent"),
        _OLDEST if version == "0.8.0" else _BEFORE_ZSTD if version != "newest" else _ALL,
        {} if version == "newest" else {"fallback": version},
        lacks,
    )


def _sarama(version: str) -> Tier:
    first, second = (int(part) for part in version.split(".")[:2])
    old = (first, second)
    lacks: dict[str, str] = {}
    if old < (0, 10):
        lacks |= {"group": "its groups need 0.10.2", "resume": "its groups need 0.10.2"}
    if old < (0, 10):
        lacks["admin"] = "needs brokers from 0.10.2 on"
    return Tier(
        f"sarama-{version}",
        f"sarama 1.61.1, Version {version}",
        GoProgram("sarama"),
        _ALL if old >= (2, 1) else _BEFORE_ZSTD if old >= (0, 10) else _OLDEST,
        {"version": version},
        lacks,
    )


def _platformatic(protocol: str) -> Tier:
    # Its zstd is that of Node 22.15; from 2.0 on it needs Node 22 itself.
    return Tier(
        f"platformatic-{protocol}",
        f"@platformatic/kafka 1.35.0, groups of the {protocol} protocol",
        NodePackage("platformatic.mjs"),
        _BEFORE_ZSTD,
        {"protocol": protocol},
    )


def _kafka_rust(codec: str) -> Tier:
    # Of a fetched message set it drops what comes before the first compressed message: one compression per topic.
    no_members = "its groups store offsets, and have no members"
    return Tier(
        f"kafka-rust-{codec}",
        f"kafka (Rust) 0.10.0, compression {codec}",
        RustProgram("kafka_rust"),
        codec,
        {},
        {**_NO_ADMIN, "group": no_members, "resume": no_members},
    )


TIERS = [
    Tier(
        "scala-0.8.0",
        "Kafka 0.8.0: Producer and SimpleConsumer",
        Jars(("org.apache.kafka:kafka_2.9.2:0.8.0",), ("Simple", "Contract")),
        _OLDEST,
        {"nulls": "no"},
        {**_NO_ADMIN, **_NO_GROUPS_IN_BROKER, "commit": "its offsets live in ZooKeeper"},
    ),
    Tier(
        "scala-0.8.2.2",
        "Kafka 0.8.2.2: Producer and SimpleConsumer",
        Jars(("org.apache.kafka:kafka_2.10:0.8.2.2",), ("Simple", "Contract", "SimpleOffsets")),
        _BEFORE_ZSTD,
        {"offsets": "yes"},
        {**_NO_ADMIN, **_NO_GROUPS_IN_BROKER},
    ),
    Tier(
        "java-0.8.2.2",
        "Java client 0.8.2.2: KafkaProducer",
        Jars((_clients("0.8.2.2"), "org.slf4j:slf4j-nop:1.7.36"), ("ProducerOnly", "Contract")),
        _BEFORE_ZSTD,
        {},
        dict.fromkeys(("admin", "fetch", "offsets", "commit", "group", "resume"), "has a producer only"),
    ),
    _old_consumer("0.9.0.1"),
    _old_consumer("0.10.2.2"),
    _old_consumer("0.11.0.3", admin=True),
    _old_consumer("1.1.1", admin=True),
    _modern("2.8.2", "1.7.36"),
    _modern("3.9.1", "1.7.36"),
    _modern("4.4.0", "1.7.36"),
    *_kafka_pythons("1.4.7", "1.1"),
    *_kafka_pythons("2.0.2", "2.5"),
    Tier(
        "kafka-python-locked",
        f"kafka-python {metadata.version('kafka-python')}",
        Locked("kafka_python"),
    ),
    Tier(
        "pykafka-0.8.2",
        "pykafka 2.8.0, broker_version 0.8.2",
        Wheels(("pykafka==2.8.0", "python-snappy", "setuptools"), "with_pykafka"),
        _OLDEST,
        {"version": "0.8.2"},
        {**_NO_ADMIN, **_NO_GROUPS_IN_BROKER},
    ),
    Tier(
        "pykafka-0.9",
        "pykafka 2.8.0, broker_version 0.9.0",
        Wheels(("pykafka==2.8.0", "python-snappy", "setuptools"), "with_pykafka"),
        _OLDEST,
        {"version": "0.9.0"},
        _NO_ADMIN,
    ),
    Tier("aiokafka", f"aiokafka {metadata.version('aiokafka')}", Locked("with_aiokafka")),
    *map(_confluent, ("0.8.0", "0.8.2", "0.9.0", "newest")),
    *map(_sarama, ("0.8.2.2", "0.10.2.0", "1.0.0", "2.8.0", "4.0.0")),
    Tier("franz-go", "franz-go 1.22.2", GoProgram("franz")),
    Tier("kafka-go", "kafka-go 0.4.51", GoProgram("kafka-go")),
    Tier("kafkajs", "kafkajs 2.2.4", NodePackage(), _OLDEST),
    *map(_platformatic, ("classic", "consumer")),
    Tier(
        "rskafka",
        "rskafka 0.6.0",
        RustProgram("rskafka"),
        lacks=dict.fromkeys(("commit", "group", "resume"), "has no groups"),
    ),
    *map(_kafka_rust, ("none", "gzip", "snappy")),
]
