"""Names of Kafka's scripts and flags that are not those of Ottla's commands, with what to use for them.

`kafka-topics`, `kafka-topics.sh` and `kafka-topics.bat` are `topics`. The flags are refused by Kafka 4.4's tools, too, except
--bootstrap-controller, which has no counterpart here: a broker answers for the controller.
"""

from types import MappingProxyType
from typing import Final

import click

_JAVA: Final = "is a Java program that works with Ottla: run Apache Kafka's"
_NO_ZOOKEEPER: Final = "Ottla has no ZooKeeper, as Kafka from 4.0 on"
_SCRIPTS: Final = MappingProxyType(
    {
        "server-start": "use `ottla serve`",
        "server-stop": "send SIGTERM to `ottla serve`",
        "run-class": "use the command of the class; `ottla --help` lists them",
        "metadata-shell": "use `ottla status`; the metadata is in a store, not in a log",
        "jmx": "use `ottla serve --metrics HOST:PORT`, which has the metrics of brokers for Prometheus",
        "preferred-replica-election": "use `ottla leader-election --election-type preferred`",
        "consumer-offset-checker": "use `ottla consumer-groups --describe`",
        "simple-consumer-shell": "use `ottla console-consumer --partition`",
        "replay-log-producer": "use `ottla console-consumer` with `ottla console-producer`",
        "mirror-maker": f"it {_JAVA} connect-mirror-maker",
        "connect-mirror-maker": f"it {_JAVA}",
        "connect-standalone": f"it {_JAVA}",
        "connect-distributed": f"it {_JAVA}",
        "connect-plugin-path": f"it {_JAVA}",
        "oauth-compatibility-tool": "use `ottla topics --list --command-config FILE` to try a login",
        "trogdor": f"it {_JAVA}",
        "zookeeper-server-start": f"{_NO_ZOOKEEPER}: use `ottla serve`",
        "zookeeper-server-stop": f"{_NO_ZOOKEEPER}: send SIGTERM to `ottla serve`",
        "zookeeper-shell": f"{_NO_ZOOKEEPER}: use `ottla status`",
        "zookeeper-security-migration": f"{_NO_ZOOKEEPER}: use `ottla acls`",
    }
)
"""Scripts without a command of the same name."""

_SERVER: Final = "use --bootstrap-server"
_FLAGS: Final = MappingProxyType(
    {
        "--bootstrap-controller": f"{_SERVER}: a broker answers for the controller",
        "--zookeeper": f"{_SERVER}: {_NO_ZOOKEEPER}",
        "--broker-list": _SERVER,
        "--authorizer": f"{_SERVER}: ACLs are changed by the brokers",
        "--authorizer-properties": f"{_SERVER}: ACLs are changed by the brokers",
        "--new-consumer": "leave it out: there is no other one",
        "--whitelist": "use --include",
        "--blacklist": "use --include, with a regular expression that does not match the topics",
        "--topic-white-list": "use --topics-include",
        "--delete-config": "use `ottla configs --alter --entity-type topics --entity-name TOPIC --delete-config NAME`",
        "--force": "leave it out: the command asks nothing",
        "--threads": "leave it out: it had no effect",
        "--num-fetch-threads": "leave it out: it had no effect",
    }
)


def command_name(name: str) -> str:
    """Return the name of the command of a script: "topics" for "kafka-topics.sh"."""
    return name.removesuffix(".sh").removesuffix(".bat").removeprefix("kafka-")


def advice_on_script(name: str) -> str | None:
    """Return what to use instead of a script that has no command, None for other names."""
    return _SCRIPTS.get(command_name(name))


def explain(error: click.NoSuchOption) -> click.UsageError:
    """Return an error that says what to use for a flag that Kafka's tools have or had; other errors as they are."""
    advice = _FLAGS.get(error.option_name)
    return error if advice is None else click.UsageError(f"no such option {error.option_name}; {advice}", error.ctx)
