"""Configuration of a broker with an authorizer, the same for Ottla and Apache Kafka.

    python -m tests.conformance.authorization.authorized PORT [name=value ...]     print the configs, one name=value a line

Listeners: PLAINTEXT, on which every client is the super user ANONYMOUS, and SASL (SASL_PLAINTEXT) with the users of USERS.
"""

import sys
from collections.abc import Mapping
from typing import Final

LISTENERS: Final = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
USERS: Final = ("alice", "bob", "carol", "dave", "erin")
SUPER_USER: Final = "root"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


def password_of(user: str) -> str:
    """Return the password of a user of SASL/PLAIN."""
    return f"{user}-secret"


def listener_ports(port: int) -> dict[str, int]:
    """Return the port of each listener; `port` + 1 is that of the controller of Apache Kafka."""
    return {name: port + (0 if number == 0 else number + 1) for number, name in enumerate(LISTENERS)}


def configs(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the configs of the broker, without those of a controller."""
    users = " ".join(f'user_{name}="{password_of(name)}"' for name in (*USERS, SUPER_USER))
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:ANONYMOUS; User:{SUPER_USER}",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.plain.sasl.jaas.config": f"{_PLAIN} required {users};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "secret",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
    }


def main(port: int, more: list[str]) -> None:
    """Print the configs for `bench/reference/kafka start`."""
    ports = listener_ports(port)
    settings = configs(ports)
    settings["advertised.listeners"] = settings["listeners"]
    settings["listeners"] += f",CONTROLLER://127.0.0.1:{port + 1}"
    settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    for pair in [f"{name}={value}" for name, value in settings.items()] + more:
        print(pair)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
