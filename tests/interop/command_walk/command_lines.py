"""Random command lines of each command, most of them right; what Ottla refuses on purpose is left out (docs/differences.md).

`{file}` in a command line stands for a file with the text that is drawn with it, `{data}` for the directory of `log_files`.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

TOPICS: Final = ("t1", "t2", "a", "b")
GROUPS: Final = ("g1", "g2", "g3", "none")
SHARE_GROUPS: Final = ("s3", "s4", "s5")
"""They read from the start."""
_EXPRESSIONS: Final = ("t1", "t.", "a|b", "c.d", "nope", "t1,t2", ".*", "[", "__consumer_offsets")
_TIMES: Final = ("2020-01-01T00:00:00.000", "2030-01-01T00:00:00.000", "2020-01-01T00:00:00.000Z")
_PERIODS: Final = ("PT1H", "P1D", "PT0S", "P1DT2H3M")
_TOPIC_CONFIGS: Final = (
    "retention.ms=1000",
    "retention.ms=x",
    "retention.ms=",
    "cleanup.policy=[compact,delete]",
    "segment.bytes=2000000",
    "compression.type=zstd",
    "max.message.bytes=-2",
    "nope=1",
    "=1",
)
_QUOTAS: Final = (
    "producer_byte_rate=1000",
    "consumer_byte_rate=5.5",
    "request_percentage=50",
    "nope=1",
    "producer_byte_rate=x",
)
_ENTITIES: Final[dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = {
    "topics": ("--topic", ("t1", "t2", "nope"), _TOPIC_CONFIGS),
    "users": ("--user", ("u1", "u2"), (*_QUOTAS, "SCRAM-SHA-256=[password=secret]", "SCRAM-SHA-512=x")),
    "clients": ("--client", ("c1", "c2"), _QUOTAS),
    "ips": ("--ip", ("127.0.0.1", "1.2.3.4"), ("connection_creation_rate=10", "connection_creation_rate=x")),
    "brokers": ("--broker", ("1", "x"), ("log.cleaner.backoff.ms=1001", "log.retention.ms=99999", "broker.id=7")),
    "groups": ("--group", ("g1", "nope"), ("consumer.session.timeout.ms=50000", "share.auto.offset.reset=earliest")),
    "client-metrics": ("--client-metrics", ("m1", "m2"), ("interval.ms=1000", "metrics=[a,b]", "match=zz", "nope=2")),
}
"""Option, names and configs of an entity type."""
_WITH_DEFAULTS: Final = ("users", "clients", "ips", "brokers")
_STREAMS_RESETS: Final[tuple[list[str], ...]] = (
    ["--to-earliest"],
    ["--to-latest"],
    ["--to-current"],
    ["--to-offset", "1"],
    ["--to-offset", "99"],
    ["--shift-by", "1"],
    ["--shift-by", "-100"],
    ["--to-datetime", _TIMES[0]],
    ["--by-duration", _PERIODS[0]],
    ["--from-file", "{file}"],
    [],
)
_PLANS: Final = (
    '{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[1]}]}',
    '{"version":1,"partitions":[{"topic":"t1","partition":0,"replicas":[1],"log_dirs":["any"]}]}',
    '{"version":1,"partitions":[{"topic":"nope","partition":0,"replicas":[1]}]}',
    '{"version":2,"partitions":[{"topic":"t1","partition":0,"replicas":[1]}]}',
    "x",
)
_MOVED: Final = (
    '{"topics":[{"topic":"t1"}],"version":1}',
    '{"topics":[{"topic":"t1"},{"topic":"t2"}],"version":1}',
    '{"topics":[{"topic":"t1"},{"topic":"t1"}],"version":1}',
    '{"topics":[{"topic":"nope"}],"version":1}',
    "x",
)


class CommandLine(NamedTuple):
    """Command with its words, and the text of its file."""

    command: str
    words: list[str]
    file: str = ""

    def __str__(self) -> str:
        return f"{self.command} {' '.join(self.words)}" + (f" with {self.file!r}" if self.file else "")


class _Words:
    """Words of one command line."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.words: list[str] = []

    def one(self, *choices: str) -> str:
        return self.dice.choice(choices)

    def add(self, *words: str) -> None:
        self.words += words

    def maybe(self, chance: float, option: str, *values: str) -> None:
        """Add an option with one of the values, with a probability."""
        if self.dice.random() < chance:
            self.add(option, *([self.dice.choice(values)] if values else []))

    def action(self, *choices: str) -> str:
        """Add an action, seldom a second one."""
        chosen = self.dice.choice(choices)
        self.add(chosen)
        if chosen.startswith("--"):
            self.maybe(0.02, self.dice.choice(choices))
        return chosen


def _topics(words: _Words) -> str:
    action = words.action("--create", "--create", "--delete", "--alter", "--describe", "--describe", "--list")
    if action == "--create":
        words.maybe(0.9, "--topic", "a", "b", "c.d", "c_d", "bad name", "x" * 250, "t1")
    else:
        words.maybe(0.9, "--topic", *(("a", "a|b", "c.d", "t2", "nope", "[") if action == "--delete" else _EXPRESSIONS))
    changes = action in ("--create", "--alter")
    words.maybe(0.5 if changes else 0.03, "--partitions", "1", "2", "3", "5", "0", "x")
    words.maybe(0.2 if changes else 0.03, "--replication-factor", "1", "2", "0")
    words.maybe(0.1 if changes else 0.03, "--replica-assignment", "1", "1,1", "2", "1:1", "x")
    words.maybe(0.4 if changes else 0.03, "--config", *_TOPIC_CONFIGS)
    words.maybe(0.2, "--if-exists")
    words.maybe(0 if "--config" in words.words else 0.2, "--if-not-exists")  # Kafka's tool looks at configs first
    words.maybe(0.1, "--exclude-internal")
    describes = action == "--describe"
    for name in ("with-overrides", "under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        option = f"--topics-{name}" if name == "with-overrides" else f"--{name}-partitions"
        words.maybe(0.08 if describes else 0.01, option)
    return ""


def _configs(words: _Words) -> str:
    action = words.action("--describe", "--alter")
    kinds = words.dice.choice([[kind] for kind in _ENTITIES] + [["users", "clients"]])
    is_short = words.dice.random() < 0.5
    for kind in kinds:
        option, names, _ = _ENTITIES[kind]
        has_name = words.dice.random() < (0.7 if kind in _WITH_DEFAULTS else 0.9)
        if is_short ^ (words.dice.random() < 0.02):
            is_default = not has_name and kind in _WITH_DEFAULTS
            words.add(*([f"{option}-defaults"] if is_default else [option, words.one(*names)]))
        else:
            words.add("--entity-type", kind)
            if has_name:
                words.add("--entity-name", words.one(*names))
            elif kind in _WITH_DEFAULTS and words.dice.random() < 0.7:
                words.add("--entity-default")
    words.maybe(0.15, "--all")
    configs = _ENTITIES[kinds[-1]][2]
    count = min(len(configs), words.dice.choice((1, 1, 2)))
    words.maybe(0.8 if action == "--alter" else 0.03, "--add-config", ",".join(words.dice.sample(configs, count)))
    words.maybe(0.3 if action == "--alter" else 0.03, "--delete-config", words.one(*configs).partition("=")[0])
    return ""


def _of_groups(words: _Words, action: str, groups: Sequence[str], kinds: Sequence[str]) -> None:
    """Add what the commands for groups have in common."""
    chance = words.dice.random()
    if chance < 0.8 or (action == "--reset-offsets" and not kinds):
        words.add("--group", words.one(*groups))
        several = ("--describe", "--reset-offsets") if kinds else ("--describe",)
        others = [group for group in groups if group not in words.words]
        words.maybe(0.15 if action in several else 0, "--group", *others)
    elif chance < 0.92:
        words.add("--all-groups")
    shows = action in ("--list", "--describe")
    for option in ("--offsets", "--members", "--verbose"):
        words.maybe(0.12 if shows else 0.01, option)
    words.maybe(0.1 if shows else 0.01, "--state")
    words.maybe(0.1 if action == "--list" else 0.02, "--state", "Empty", "stable", "empty,Stable", "nope")
    if kinds:
        words.maybe(0.1 if action == "--list" else 0.02, "--type", *kinds)
    changes = action in ("--reset-offsets", "--delete-offsets")
    if changes and words.dice.random() < 0.2:
        words.add("--all-topics")
    else:
        # With --all-groups Kafka's tool looks at topics when it comes to the first group.
        chance, wrong = (1, ()) if "--all-groups" in words.words else (0.9, ("t1:x",))
        words.maybe(chance if changes else 0.03, "--topic", "a", "t1", "t2", "nope", "t1:0", "t1:0,1", "t1:9", *wrong)


def _consumer_groups(words: _Words) -> str:
    resets = ["--reset-offsets"] * 3
    action = words.action(
        "--list", "--describe", "--describe", "--delete", *resets, "--delete-offsets", "--validate-regex"
    )
    if action == "--validate-regex":
        words.words[:] = [action, words.one("a.*", "", "x|y", "[")]
        return ""
    _of_groups(words, action, (*GROUPS, "s1"), ("classic", "Consumer", "share", "nope", "classic,consumer"))
    if action == "--reset-offsets":
        target = words.dice.randrange(7 if "--all-groups" in words.words else 9)
        if target < 3:
            words.add(words.one("--to-earliest", "--to-latest", "--to-current"))
        words.maybe(target == 3, "--to-offset", "0", "1", "99", "-1", "x")
        words.maybe(target == 4, "--shift-by", "1", "-1", "100", "-100", "x")
        # Kafka's tool looks at these when it comes to the first group.
        wrong = () if "--all-groups" in words.words else ("2020-01-01", "x")
        words.maybe(target == 5, "--to-datetime", *_TIMES, *wrong)
        words.maybe(target == 6, "--by-duration", *_PERIODS, *wrong)
        if target == 7 and not {"--topic", "--all-topics"} & set(words.words):
            words.add("--from-file", "{file}")
        words.maybe(0.5, "--execute")
        words.maybe(0.4, "--dry-run")
        words.maybe(0.2, "--export")
    return words.one("t1,0,1\nt1,1,0\n", "t1,0,99\n", "g1,t1,0,1\n", "g1,t1,0,2\ng2,t1,0,1\n", "t1,0,x\n", "nope,0,1\n")


def _share_groups(words: _Words) -> str:
    action = words.action("--list", "--describe", "--describe", "--delete", "--reset-offsets", "--delete-offsets")
    _of_groups(words, action, ("s1", "s2", "g1", "none"), ())
    if action == "--reset-offsets":
        words.add(*words.dice.choice((["--to-earliest"], ["--to-latest"], ["--to-datetime", words.one(*_TIMES)], [])))
        words.maybe(0.5, "--execute")
        words.maybe(0.4, "--dry-run")
    return ""


def _streams_groups(words: _Words) -> str:
    action = words.action("--list", "--describe", "--describe", "--delete", "--reset-offsets", "--delete-offsets")
    if words.dice.random() < 0.85:
        others = () if action == "--reset-offsets" else ("g1",)  # Kafka's tool resets those of consumer groups too
        words.add("--group", words.one("app1", "app1", "app2", "none", *others))
        words.maybe(0.1, "--group", "app2")
    else:
        words.maybe(0.8, "--all-groups")
    shows, changes = action in ("--list", "--describe"), action in ("--reset-offsets", "--delete-offsets")
    for option in ("--offsets", "--members", "--verbose"):
        words.maybe(0.2 if shows else 0.01, option)
    words.maybe(0.15 if shows else 0.01, "--state")
    words.maybe(0.15 if action == "--list" else 0.02, "--state", "Empty", "notready,Stable", "nope")
    if changes and words.dice.random() < 0.4:
        words.add("--all-input-topics")
    else:
        words.maybe(
            0.9 if changes else 0.03, "--input-topic", "t1", "t2", "t1:0,2", "t1:9", "nope", "app1-words-repartition"
        )
    if action == "--reset-offsets":
        words.add(*words.dice.choice(_STREAMS_RESETS))
        words.maybe(0.4, "--execute")
        words.maybe(0.4, "--dry-run")
        words.maybe(0.15, "--export")
        words.maybe(0.1, "--delete-all-internal-topics")
        words.maybe(0.1, "--delete-internal-topic", "app1-counts-changelog")
    elif action == "--delete":
        words.maybe(0.3, "--delete-all-internal-topics")
    return words.one("t1,0,1\nt1,1,0\n", "t1,0,99\n", "t1,0,x\n", "nope,0,1\n")


def _groups(words: _Words) -> str:
    words.maybe(0.95, "--list")
    words.maybe(0.2, "--group-type", "consumer", "classic", "share", "nope", "Streams")
    words.maybe(0.15, "--protocol", "consumer", "x", "")
    for option in ("--consumer", "--share", "--streams"):
        words.maybe(0.15, option)
    return ""


def _get_offsets(words: _Words) -> str:
    words.maybe(0.5, "--topic", *_EXPRESSIONS)
    words.maybe(0.3, "--partitions", "0", "0,1", "9", "x", "")
    words.maybe(0.3, "--topic-partitions", "t1", "t1:0", "t1:0-2", "t1:1-", ":0", "t1:-1", "t1:x", "a,b:0", "t1:2-1")
    words.maybe(0.4, "--time", "latest", "earliest", "max-timestamp", "-1", "-2", "-3", "-5", "1700000000500", "x")
    words.maybe(0.15, "--exclude-internal-topics")
    return ""


def _delete_records(words: _Words) -> str:
    words.maybe(0.95, "--offset-json-file", "{file}")
    dice = words.dice
    # Kafka's tool waits a minute for a partition that does not exist: t1 is never deleted.
    rows = [
        {"topic": "t1", "partition": dice.randrange(3), "offset": dice.choice((0, 1, -1, 99))}
        for _ in range(dice.choice((1, 1, 2, 0)))
    ]
    text = json.dumps({"partitions": rows, "version": dice.choice((1, 1, 1, 2))})
    return words.one(text, text, text, text, "x", "{}", "[]")


def _log_dirs(words: _Words) -> str:
    words.maybe(0.95, "--describe")
    words.maybe(0.3, "--broker-list", "1", "x", "9")
    words.maybe(0.5, "--topic-list", "t1", "t1,t2", "nope", "t1,t1")
    return ""


def _leader_election(words: _Words) -> str:
    words.maybe(0.95, "--election-type", "preferred", "unclean", "PREFERRED", "x")
    words.maybe(0.6, "--topic", "t1", "nope")
    words.maybe(0.6, "--partition", "0", "9", "x")
    words.maybe(0.3, "--all-topic-partitions")
    words.maybe(0.2, "--path-to-json-file", "{file}")
    first, missing = (f'{{"topic":"t1","partition":{index}}}' for index in (0, 9))
    return words.one(*(f'{{"partitions":[{row}]}}' for row in (first, f"{first},{first}", missing, "")), "{}", "x")


def _reassign_partitions(words: _Words) -> str:
    action = words.action("--generate", "--execute", "--verify", "--cancel", "--list")
    proposes, lists = action == "--generate", action == "--list"
    words.maybe(0.9 if proposes else 0.02, "--topics-to-move-json-file", "{file}")
    words.maybe(0.9 if proposes else 0.02, "--broker-list", "1", "x", "1,1")
    words.maybe(0.2 if proposes else 0.02, "--disable-rack-aware")
    words.maybe(0.02 if proposes or lists else 0.95, "--reassignment-json-file", "{file}")
    words.maybe(0.1, "--throttle", "1000")
    words.maybe(0.1, "--additional")
    words.maybe(0.1, "--preserve-throttles")
    words.maybe(0.1, "--timeout", "1000", "x")
    return words.one(*(_MOVED if proposes else _PLANS))


def _features(words: _Words) -> str:
    action = words.action("describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies")
    if action == "describe":
        return ""
    if action == "version-mapping":
        words.add("--release-version", words.one("4.0", "4.1-IV1", "nope", "3.9"))
        return ""
    names = ("group.version", "transaction.version", "streams.version", "kraft.version", "nope")
    for name in words.dice.sample(names, words.dice.choice((1, 1, 2))):
        words.maybe(0.9, "--feature", name if action == "disable" else f"{name}={words.one('0', '1', '2', 'x', '9')}")
    if action != "feature-dependencies":
        words.add("--dry-run")
        words.maybe(0.1, "--release-version", "4.0", "nope")
    return ""


def _transactions(words: _Words) -> str:
    action = words.action("list", "describe", "describe-producers", "find-hanging", "abort")
    if action == "list":
        words.maybe(0.2, "--duration-filter", "0", "1000", "x")
        words.maybe(0.2, "--transactional-id-pattern", "tx.*", "nope")
    elif action == "describe":
        words.maybe(0.9, "--transactional-id", "tx1", "nope")
    else:
        words.maybe(0.9, "--topic", "t1")  # for others Kafka's tool waits a minute
        words.maybe(0.9, "--partition", "0", "x")
    if action == "abort":
        words.maybe(0.6, "--start-offset", "0", "5", "99")
        words.maybe(0.2, "--producer-id", "1000")
        words.maybe(0.2, "--producer-epoch", "0")
        words.maybe(0.2, "--coordinator-epoch", "0")
    elif action not in ("list", "describe"):
        words.maybe(0.3, "--broker-id", "1")
    return ""


def _cluster(words: _Words) -> str:
    if words.action("cluster-id", "list-endpoints", "unregister") == "unregister":
        words.maybe(0.9, "--id", "9", "x")
    words.maybe(0.1, "--include-fenced-brokers")
    return ""


def _client_metrics(words: _Words) -> str:
    action = words.action("--alter", "--alter", "--delete", "--describe", "--list")
    words.maybe(0.1, "--generate-name")
    words.maybe(0.7, "--name", "m1", "m2", "nope")
    chance = 0.5 if action == "--alter" else 0.03
    words.maybe(chance, "--metrics", "a.,b.", "*", "", "org.apache.kafka.producer.")
    words.maybe(chance, "--interval", "1000", "5", "x", "")
    words.maybe(chance, "--match", "client_id=a", "client_id=[", "nope=1", "x", "client_software_name=a,client_id=b")
    return ""


def _acls(words: _Words) -> str:
    action = words.action("--add", "--add", "--remove", "--list", "--list")
    words.maybe(0.6, "--topic", "a", "*", "t1")
    words.maybe(0.3, "--group", "g1", "*")
    words.maybe(0.15, "--cluster")
    words.maybe(0.15, "--transactional-id", "tx1")
    lists = action == "--list"
    words.maybe(0.05 if lists else 0.7, "--allow-principal", "User:u1", "User:*", "u1", "User:CN=a,O=b")
    words.maybe(0.05 if lists else 0.2, "--deny-principal", "User:u1", "User:u2")
    words.maybe(0.1, "--allow-host", "127.0.0.1", "*")
    operations = ("Read", "write", "ALL", "DescribeConfigs", "nope", "IdempotentWrite", "ClusterAction")
    # Without a principal Kafka's tool removes all ACLs of the resources, whatever the operation: Ottla's checks that too.
    words.maybe(0.03 if lists else 0.6, "--operation", *(("ALL",) if action == "--remove" else operations))
    words.maybe(0.1, "--producer")
    words.maybe(0.1, "--consumer")
    words.maybe(0.05, "--idempotent")
    words.maybe(0.2, "--resource-pattern-type", "literal", "prefixed", "any", "match", "x")
    words.maybe(0.3 if lists else 0, "--principal", "User:u1", "User:*", "x")
    if action == "--remove":
        words.add("--force")
    return ""


_LINES: Final = (
    "one\ntwo\n",
    "k\tv\n\tempty key\nk2\t\n",
    "no separator\n",
    "h:1\tk\tv\n",
    "h:1,i:\tk\tv\nNULL\tNULL\tNULL\n",
    "h:1\tNULL\tNULL\n:\tk\tv\n",
    "h\tk\tv\n",
    "h:1,,\tk\tv\n,\tk\tv\n",
    "\tk\tv\n",
    "a:b|c:d/e\n",
    "k:v:w\nNULL:x\n:\n",
    "",
    "\n\n",
    "last line without an end",
    "ü\tß\r\n",
)
_READER: Final = (
    "parse.key=true",
    "parse.key=true",
    "parse.headers=true",
    "parse.headers=true",
    "key.separator=:",
    "key.separator=::",
    "key.separator=",
    "headers.delimiter=|",
    "headers.separator=/",
    "headers.key.separator=:",
    "null.marker=NULL",
    "null.marker=",
    "ignore.error=true",
    "nope=1",
)
_PARTS: Final = ("timestamp", "key", "offset", "delivery", "partition", "headers")
_FORMATTER: Final = (
    *(f"print.{part}=true" for part in _PARTS),
    "print.value=false",
    "key.separator=:",
    "headers.separator=/",
    "null.literal=NIL",
    "line.separator=;\n",
    "value.deserializer=org.apache.kafka.common.serialization.StringDeserializer",
    "print.key=yes",
    "nope=1",
)
_CONSUMER: Final = "org.apache.kafka.tools.consumer."


def _console_producer(words: _Words) -> str:
    words.maybe(0.97, "--topic", "lines", "lines", "n1")  # which no other command changes
    for _ in range(words.dice.choice((0, 1, 2, 3, 4))):
        words.add("--property" if words.dice.random() < 0.1 else "--reader-property", words.one(*_READER))
    words.maybe(0.2, "--sync")
    words.maybe(0.15, "--compression-codec", "gzip", "zstd", "none", "nope")
    words.maybe(0.1, "--request-required-acks", "all", "1", "0", "-1", "x")
    words.maybe(0.1, "--batch-size", "1", "100000", "x")
    words.maybe(0.1, "--timeout", "0", "20")
    words.maybe(0.1, "--max-block-ms", "5000")
    words.maybe(0.1, "--command-property", "client.id=walk", "linger.ms=1", "acks=0", "acks=x")
    words.maybe(0.05, "--producer-property", "client.id=walk")
    return words.one(*_LINES)


def _console_consumer(words: _Words) -> str:
    has_topic = words.dice.random() < 0.9
    if has_topic:
        words.add("--topic", words.one("t1", "lines", "lines", "n1"))
    words.maybe(0.03 if has_topic else 0.8, "--include", "t1|lines", "n1|lines", "lines", "x.*", "[")
    if words.dice.random() < 0.5 and "n1" not in words.words:  # the tool waits for a topic that does not exist
        words.add("--partition", words.one("0", "1" if "t1" in words.words else "0"))
        words.maybe(0.8, "--offset", "earliest", "earliest", "latest", "0", "2", "99", "-1", "x")
        words.maybe(0.1, "--from-beginning")
    else:
        words.maybe(0.85, "--from-beginning")
        words.maybe(0.05, "--offset", "earliest")
    if "t1" not in words.words and "--include" not in words.words:  # others have one partition
        words.maybe(0.4, "--max-messages", "1", "2", "5", "0", "x")
    words.maybe(0.25, "--isolation-level", "read_committed", "read_uncommitted", "nope")
    words.maybe(0.15, "--group", "c1", "c2")
    words.maybe(0.1, "--skip-message-on-error")
    names = (
        f"{_CONSUMER}{name}" for name in ("DefaultMessageFormatter", "LoggingMessageFormatter", "NoOpMessageFormatter")
    )
    words.maybe(0.15, "--formatter", *names, "nope")
    for _ in range(words.dice.choice((0, 1, 2, 3, 5))):
        words.add("--property" if words.dice.random() < 0.1 else "--formatter-property", words.one(*_FORMATTER))
    deserializers = [f"org.apache.kafka.common.serialization.{kind}Deserializer" for kind in ("String", "Long")]
    words.maybe(0.07, "--key-deserializer", *deserializers)
    words.maybe(0.07, "--value-deserializer", *deserializers)
    words.maybe(0.1, "--command-property", "client.id=walk", "auto.offset.reset=earliest", "auto.offset.reset=x")
    words.maybe(0.05, "--consumer-property", "client.id=walk", "group.id=c2")
    words.add("--timeout-ms", "1000")
    return ""


def _console_share_consumer(words: _Words) -> str:
    topic = words.one("t1", "t2", "lines", "lines")
    if words.dice.random() < 0.97:
        words.add("--topic", topic)
    words.maybe(0.8, "--group", *SHARE_GROUPS)
    words.maybe(
        0.4 if topic != "t1" else 0, "--max-messages", "1", "2", "5", "x"
    )  # which of several partitions comes first
    words.maybe(0.1, "--release")
    words.maybe(0.1, "--reject")
    words.maybe(0.1, "--reject-message-on-error")
    words.maybe(0.1, "--enable-systest-events")
    words.maybe(0.15, "--formatter", f"{_CONSUMER}DefaultMessageFormatter", f"{_CONSUMER}NoOpMessageFormatter", "nope")
    for _ in range(words.dice.choice((0, 1, 2, 3))):
        words.add("--property" if words.dice.random() < 0.1 else "--formatter-property", words.one(*_FORMATTER))
    words.maybe(0.1, "--command-property", "client.id=walk", "share.acknowledgement.mode=x")
    words.add("--timeout-ms", "2000")
    return ""


def _dump_log(words: _Words) -> str:
    names = {topic: f"{{data}}/{topic}/{0:020d}" for topic in ("rows-0", "numbers-0", "sales-0", "empty-0")}
    logs = [f"{name}.log" for name in names.values()]
    # A file that does not exist is an error of Ottla's command only: one topic has a transaction index.
    kinds = {"rows-0": ("index", "timeindex"), "sales-0": ("index", "timeindex", "txnindex")}
    indexes = [f"{names[topic]}.{kind}" for topic, its in kinds.items() for kind in its]
    internal = {
        f"{{data}}/__consumer_offsets-38/{0:020d}.log": "--offsets-decoder",
        f"{{data}}/__transaction_state-13/{0:020d}.log": "--transaction-log-decoder",
    }
    several = words.dice.sample([*logs, *logs, *indexes], words.dice.choice((1, 1, 2)))
    decoded = words.one(*internal) if words.dice.random() < 0.3 else None
    words.add("--files", ",".join(several if decoded is None else [decoded]))
    if decoded is not None:
        words.maybe(0.8, internal[decoded])
    elif several == [logs[2]]:
        words.maybe(0.1, "--transaction-log-decoder")
    for name in ("print-data-log", "deep-iteration", "skip-record-metadata", "verify-index-only", "index-sanity-check"):
        words.maybe(0.3, f"--{name}")
    decoders = [f"org.apache.kafka.tools.api.{kind}Decoder" for kind in ("String", "Integer", "Long")]
    if several == [logs[1]] and decoded is None:  # the tool ends at values that are too short for a number
        words.maybe(0.4, "--key-decoder-class", *decoders, "nope")
        words.maybe(0.4, "--value-decoder-class", *decoders)
    else:
        words.maybe(0.1, "--value-decoder-class", decoders[0])
    words.maybe(0.2, "--max-bytes", "0", "1", "100", "300", "100000")
    return ""


_DRAWN: Final[dict[str, Callable[[_Words], str]]] = {
    "acls": _acls,
    "client-metrics": _client_metrics,
    "cluster": _cluster,
    "configs": _configs,
    "console-consumer": _console_consumer,
    "console-producer": _console_producer,
    "console-share-consumer": _console_share_consumer,
    "consumer-groups": _consumer_groups,
    "delete-records": _delete_records,
    "dump-log": _dump_log,
    "features": _features,
    "get-offsets": _get_offsets,
    "groups": _groups,
    "leader-election": _leader_election,
    "log-dirs": _log_dirs,
    "reassign-partitions": _reassign_partitions,
    "share-groups": _share_groups,
    "streams-groups": _streams_groups,
    "topics": _topics,
    "transactions": _transactions,
}
COMMANDS: Final = tuple(_DRAWN)


def draw(dice: random.Random, commands: Sequence[str] = COMMANDS) -> CommandLine:
    """Draw a command line of one of the commands."""
    words = _Words(dice)
    command = dice.choice(commands)
    file = _DRAWN[command](words)
    return CommandLine(command, words.words, file)
