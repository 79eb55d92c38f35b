"""Configuration of a broker with a listener of each kind, the same for Ottla and Apache Kafka, and certificates for it.

    python -m tests.conformance.security.secured DIR PORT     write the certificates, and print the configs as name=value

Listeners: PLAINTEXT, SASL (SASL_PLAINTEXT), SHORT (the same with sessions of 3 s), TLS (SSL), MTLS (client certificates
required), MAPPED (client certificates welcome, with mapping rules), SASLTLS (SASL_SSL).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trustme

LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "MAPPED": "SSL",
    "SASLTLS": "SASL_SSL",
}
USERS: Final = {"broker": "broker-secret", "alice": "alice-secret", "bob": "bob-secret"}
SESSION_MS: Final = 3000
UNIT: Final = "Brokers"
"""Part of the subject of the broker's certificate; by default it would be random."""
_MODULES: Final = "org.apache.kafka.common.security"
_UNSECURED: Final = f"{_MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def listener_ports(port: int) -> dict[str, int]:
    """Return the port of each listener; `port` + 1 is that of the controller of Apache Kafka."""
    return {name: port + (0 if number == 0 else number + 1) for number, name in enumerate(LISTENERS)}


def make_certificates(directory: Path) -> None:
    """Write PEM files: an authority, the broker's key and chain, keys of clients, and a key of another authority."""
    directory.mkdir(parents=True, exist_ok=True)
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    authority.private_key_pem.write_to_path(directory / "ca.key.pem")
    broker = authority.issue_cert("localhost", "127.0.0.1", common_name="broker", organization_unit_name=UNIT)
    broker.private_key_and_cert_chain_pem.write_to_path(directory / "broker.pem")
    for name in ("alice", "bob"):
        issued = authority.issue_cert(f"{name}.example", common_name=name, organization_name="Org")
        issued.private_key_and_cert_chain_pem.write_to_path(directory / f"{name}.pem")
    other = stranger.issue_cert("mallory.example", common_name="mallory")
    other.private_key_and_cert_chain_pem.write_to_path(directory / "mallory.pem")
    stranger.cert_pem.write_to_path(directory / "stranger-ca.pem")


def configs(certificates: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """Return the configs of the broker, without those of a controller."""
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(write_key_store(certificates / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.tls.ssl.client.auth": "none",
        "ssl.client.auth": "required",
        "listener.name.mapped.ssl.client.auth": "requested",
        "listener.name.mapped.ssl.principal.mapping.rules": "RULE:^CN=alice,.*$/alice/U",
        "listener.name.short.plain.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.short.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
    }
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    for listener in ("sasl", "short", "sasltls"):
        prefix = f"listener.name.{listener}"
        settings |= {
            f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{prefix}.plain.sasl.jaas.config": (
                f'{_MODULES}.plain.PlainLoginModule required username="broker" password="broker-secret" {users};'
            ),
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": (
                f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": _UNSECURED,
        }
    return settings


def write_key_store(path: Path) -> Path:
    """Write the key and chain of `path` in the form that Apache Kafka reads: the key in PKCS#8."""
    from cryptography.hazmat.primitives import serialization

    pem = path.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    chain = pem[pem.index(b"-----BEGIN CERTIFICATE-----") :]
    target = path.with_suffix(".store.pem")
    target.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + chain
    )
    return target


def main(directory: Path, port: int) -> None:
    """Write the certificates, and print the configs for `bench/reference/kafka start`."""
    make_certificates(directory)
    ports = listener_ports(port)
    settings = configs(directory, ports)
    settings["listeners"] += f",CONTROLLER://127.0.0.1:{port + 1}"
    settings["advertised.listeners"] = configs(directory, ports)["listeners"]
    settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    settings["connection.failed.authentication.delay.ms"] = "0"
    settings["delegation.token.secret.key"] = "secret"
    for name, value in settings.items():
        print(f"{name}={value}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
