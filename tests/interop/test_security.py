"""Apache Kafka's own tools with TLS and SASL against Ottla, and a directory of Apache Kafka with SASL_SSL and SCRAM users."""

import json
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.security.conftest import Secured, secured, set_scram_password  # noqa: F401  (a fixture)
from tests.conformance.security.secured import LISTENERS, configs, listener_ports, make_certificates, write_key_store
from tests.conformance.security.test_clients import WAYS, Way, protocol, with_confluent_kafka
from tests.conformance.security.test_oauthbearer import token
from tests.free_ports import free_ports

from .apache_kafka import SCRIPT, ApacheKafka
from .clients.environments import Environment, GoProgram, NodePackage, Unavailable

pytestmark = pytest.mark.usefixtures("kafka_tools")
SCRAM_OVER_TLS: Final = Way("SASLTLS", "SCRAM-SHA-512", "scram", "scram-secret")
MODULES: Final = "org.apache.kafka.common.security"
LOGINS: Final = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required username="alice" password="alice-secret";',
    "SCRAM-SHA-256": f'{MODULES}.scram.ScramLoginModule required username="scram" password="scram-secret";',
    "SCRAM-SHA-512": f'{MODULES}.scram.ScramLoginModule required username="scram" password="scram-secret";',
    "OAUTHBEARER": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="olga";',
}


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a class of Kafka's tools."""
    command = [str(SCRIPT), "tool", name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def command_config(directory: Path, **properties: str) -> str:
    path = directory / "client.properties"
    lines = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def trust(broker: Secured) -> dict[str, str]:
    return {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(broker.certificates / "ca.pem")}


def topics(broker: Secured, listener: str, config: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    address = f"127.0.0.1:{broker.ports[listener]}"
    return tool(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--command-config", config, *arguments
    )


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("program", [GoProgram("franz-login"), NodePackage("login.js")], ids=["franz-go", "kafkajs"])
def test_clients_of_other_languages(secured: Secured, program: Environment, way: Way) -> None:  # noqa: F811
    settings = {
        "protocol": protocol(way),
        "mechanism": way.mechanism or "",
        "user": way.user or "",
        "password": way.password or "",
        "token": token() if way.mechanism == "OAUTHBEARER" else "",
        "ca": str(secured.certificates / "ca.pem"),
        "certificate": str(secured.certificates / f"{way.certificate}.pem") if way.certificate else "",
    }
    try:
        command = program.prepare()
    except Unavailable as reason:
        pytest.skip(str(reason))
    address = f"127.0.0.1:{secured.ports[way.listener]}"
    topic = f"t-{uuid.uuid4().hex[:8]}"
    done = subprocess.run(
        [*command, address, json.dumps(settings), topic], capture_output=True, text=True, timeout=110, check=False
    )
    assert (done.returncode, done.stdout) == (0, "v\n"), done.stderr


@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
def test_topics_with_sasl(secured: Secured, tmp_path: Path, listener: str, mechanism: str) -> None:  # noqa: F811
    properties = {
        "security_protocol": LISTENERS[listener],
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": LOGINS[mechanism],
    }
    config = command_config(tmp_path, **properties, **trust(secured))
    name = f"java-{listener}-{mechanism}".lower()
    made = topics(secured, listener, config, "--create", "--topic", name)
    assert made.returncode == 0, made.stdout + made.stderr
    assert name in topics(secured, listener, config, "--list").stdout.split()


def test_topics_with_client_certificates(secured: Secured, tmp_path: Path) -> None:  # noqa: F811
    key_store = write_key_store(secured.certificates / "alice.pem")
    store = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(key_store)}
    config = command_config(tmp_path, security_protocol="SSL", **store, **trust(secured))
    listing = topics(secured, "MTLS", config, "--list")
    assert listing.returncode == 0, listing.stdout + listing.stderr
    config = command_config(tmp_path, security_protocol="SSL", **trust(secured))
    refused = topics(secured, "MTLS", config, "--list")
    assert refused.returncode == 1
    assert "Failed to process post-handshake messages" in refused.stdout + refused.stderr


def test_a_wrong_password(secured: Secured, tmp_path: Path) -> None:  # noqa: F811
    jaas = LOGINS["PLAIN"].replace("alice-secret", "wrong")
    config = command_config(tmp_path, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)
    refused = topics(secured, "SASL", config, "--list")
    assert refused.returncode == 1
    assert "Authentication failed: Invalid username or password" in refused.stdout + refused.stderr


def test_delegation_tokens(secured: Secured, tmp_path: Path) -> None:  # noqa: F811
    jaas = LOGINS["PLAIN"]
    config = command_config(tmp_path, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)
    address = f"127.0.0.1:{secured.ports['SASL']}"
    common = (
        "org.apache.kafka.tools.DelegationTokenCommand",
        "--bootstrap-server",
        address,
        "--command-config",
        config,
    )
    made = tool(*common, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert made.returncode == 0, made.stdout + made.stderr
    row = made.stdout.splitlines()[-1].split()
    token_id, hmac = row[0], row[1]
    assert "User:alice" in row
    jaas = f'{MODULES}.scram.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true";'
    config = command_config(
        tmp_path, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas
    )
    listing = topics(secured, "SASL", config, "--list")
    assert listing.returncode == 0, listing.stdout + listing.stderr


def test_a_directory_with_scram_users_is_adopted(tmp_path: Path) -> None:
    """Apache Kafka's server.properties starts Ottla unchanged, and its users log in as before."""
    certificates = tmp_path / "certificates"
    make_certificates(certificates)
    port = free_ports(len(LISTENERS) + 1)[0]
    ports = listener_ports(port)
    values = configs(certificates, ports)
    values["advertised.listeners"] = values["listeners"]
    values["listeners"] += f",CONTROLLER://127.0.0.1:{port + 1}"
    values["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    node = ApacheKafka(tmp_path / "kafka", "4.4.0", *(f"{name}={value}" for name, value in values.items()), port=port)
    broker = Secured(ports, certificates, is_kafka=True)
    try:
        set_scram_password(broker, "scram", "scram-secret")
        time.sleep(1)
        assert with_confluent_kafka(broker, SCRAM_OVER_TLS, "adopted") == b"v"
    finally:
        node.stop()
    properties = str(node.directory / "server.properties")
    command = [sys.executable, "-m", "ottla", "storage", "import", "--config", properties]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "SCRAM credentials of: scram" in done.stdout
    serving = subprocess.Popen(
        [sys.executable, "-m", "ottla", "serve", "--config", properties],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert f"SASLTLS://127.0.0.1:{ports['SASLTLS']}" in serving.stdout.readline()
        assert with_confluent_kafka(broker, SCRAM_OVER_TLS, "adopted") == b"v"
    finally:
        serving.terminate()
        serving.communicate(timeout=30)


def test_openssl(secured: Secured) -> None:  # noqa: F811
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on the PATH")
    for version in ("-tls1_2", "-tls1_3"):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{secured.ports['TLS']}", version]
        command += ["-CAfile", str(secured.certificates / "ca.pem"), "-verify_return_error", "-verify_ip", "127.0.0.1"]
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert "Verify return code: 0 (ok)" in done.stdout
