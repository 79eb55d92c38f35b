"""`deploy/`: files for containers, systemd and Kubernetes. They are checked by linters; the brokers that they describe are
started here as processes, with addresses of this machine in place of host names. Images, units and pods themselves are not run.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ottla import Admin
from ottla.schemas.registry import Schema, SchemaRegistry
from ottla.testing import Kafka
from tests.crash.brokers import wait_until
from tests.etcd_server import EtcdServer, running
from tests.free_ports import free_ports

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes" / "ottla.yaml"
KUBERNETES_REGISTRY = DEPLOY / "kubernetes" / "schema-registry.yaml"
MONITORING = sorted((DEPLOY / "prometheus").glob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
UNITS = sorted((DEPLOY / "systemd").rglob("*.service"))
COMMANDS = Path(sys.executable).parent
STYLE = (
    "{extends: default, rules: {line-length: {max: 128}, comments: {min-spaces-from-content: 1}, "
    "document-start: disable, truthy: {check-keys: false}}}"
)


def passes(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


# -- linters --


@pytest.mark.parametrize(
    "path", [COMPOSE, KUBERNETES, KUBERNETES_REGISTRY, *MONITORING, *WORKFLOWS], ids=lambda path: path.name
)
def test_yaml_is_tidy(path: Path) -> None:
    passes(COMMANDS / "yamllint", "--strict", "--config-data", STYLE, path)


def test_the_compose_file_follows_its_schema() -> None:
    passes(COMMANDS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_workflows_follow_their_schema() -> None:
    assert WORKFLOWS
    passes(COMMANDS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)


@pytest.mark.parametrize("path", [KUBERNETES, KUBERNETES_REGISTRY], ids=lambda path: path.name)
def test_kubernetes_accepts_the_manifests(path: Path) -> None:
    passes(COMMANDS / "kubernetes-validate", "--strict", "--quiet", path)


@pytest.mark.skipif(not (COMMANDS / "hadolint").exists(), reason="hadolint is packaged for Linux only")
def test_the_dockerfile_has_no_warnings() -> None:
    passes(COMMANDS / "hadolint", DEPLOY / "docker" / "Dockerfile")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    # The programs of the units are not installed on this machine.
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


# -- brokers --


class Described(NamedTuple):
    """Broker as a file describes it: arguments of `ottla serve`, and environment variables."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


@contextlib.contextmanager
def run_brokers(described: Sequence[Described], replacements: Sequence[Mapping[str, str]]) -> Iterator[None]:
    """Run brokers with the texts of `replacements` in place of host names and paths."""
    processes = []

    def replaced(text: str, by: Mapping[str, str]) -> str:
        for old, new in by.items():
            text = text.replace(old, new)
        return text

    try:
        for broker, by in zip(described, replacements, strict=True):
            arguments = [replaced(argument, by) for argument in broker.arguments]
            environment = {name: replaced(value, by) for name, value in broker.environment.items()}
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "ottla", "serve", *arguments],
                    env={**os.environ, **environment},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        yield
    finally:
        texts = []
        for process in processes:
            process.terminate()
            texts.append(process.communicate(timeout=30)[1])
        sys.stdout.writelines(texts)  # shown if the test fails


def assert_cluster(ports: Sequence[int]) -> None:
    """Wait until every address answers, and shows all brokers."""
    for port in ports:
        with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
            wait_until(lambda admin=admin: len(admin.describe_cluster().nodes) == len(ports), 60)  # type: ignore[misc]
            assert sorted(node.port for node in admin.describe_cluster().nodes) == sorted(ports)


def expanded(value: str, environment: Mapping[str, str]) -> str:
    """Replace $(NAME) by the value of an earlier variable, as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], value)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with running(tmp_path / "etcd") as server:
        yield server


def test_the_brokers_of_the_compose_file_form_a_cluster(etcd: EtcdServer, tmp_path: Path) -> None:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    brokers = [service for name, service in services.items() if name.startswith("broker-")]
    assert len(brokers) == 3
    free = free_ports(9)
    ports, metrics = free[:6], free[6:]
    described, replacements = [], []
    outside = [
        re.search(r"HOST://127.0.0.1:(\d+)", one["environment"]["OTTLA_ADVERTISED_LISTENERS"]) for one in brokers
    ]
    for number, service in enumerate(brokers):
        inner, outer = ports[2 * number : 2 * number + 2]
        matched = outside[number]
        assert matched is not None
        assert service["ports"] == [f"127.0.0.1:{matched[1]}:19092", f"127.0.0.1:{9464 + number}:9464"]
        paths = {"OTTLA_LOG_DIRS": str(tmp_path / f"data-{number}")}  # as the image sets it
        described.append(Described(service["command"], {**paths, **service["environment"]}))
        replacements.append(
            {
                "etcd:2379/": f"127.0.0.1:{etcd.port}/",
                f"HOST://127.0.0.1:{matched[1]}": f"HOST://127.0.0.1:{outer}",
                "0.0.0.0:19092": f"127.0.0.1:{outer}",
                "0.0.0.0:9092": f"127.0.0.1:{inner}",
                f"broker-{number + 1}:9092": f"127.0.0.1:{inner}",
                "0.0.0.0:9464": f"127.0.0.1:{metrics[number]}",
            }
        )
    with run_brokers(described, replacements):
        assert_cluster(ports[1::2])
        for port, service in zip(metrics, brokers, strict=True):
            program = service["healthcheck"]["test"][3].replace("127.0.0.1:9464", f"127.0.0.1:{port}")
            wait_until(lambda program=program: _succeeds(program), 30)  # type: ignore[misc]


def _succeeds(program: str) -> bool:
    return subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_prometheus_scrapes_the_brokers_of_the_compose_file() -> None:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    published = [port for name, one in services.items() if name.startswith("broker-") for port in one["ports"]]
    targets = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert targets["static_configs"][0]["targets"] == [
        port.removesuffix(":9464") for port in published if port.endswith(":9464")
    ]


def test_the_brokers_of_the_kubernetes_manifest_form_a_cluster(etcd: EtcdServer, tmp_path: Path) -> None:
    resources = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(KUBERNETES.read_text())}
    workload = resources["StatefulSet", "ottla"]["spec"]
    (container,) = workload["template"]["spec"]["containers"]
    assert workload["serviceName"] == "ottla-brokers"
    replicas = workload["replicas"]
    free = free_ports(2 * replicas)
    ports, metrics = free[:replicas], free[replicas:]
    described, replacements = [], []
    for number, port in enumerate(ports):
        fields = {
            "metadata.name": f"ottla-{number}",
            "metadata.namespace": "ottla",
            "metadata.labels['apps.kubernetes.io/pod-index']": str(number),
        }
        environment: dict[str, str] = {}
        for variable in container["env"]:
            value = variable.get("value") or fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            environment[variable["name"]] = expanded(value, environment)
        config = tmp_path / f"server-{number}.properties"
        properties: str = resources["ConfigMap", "ottla"]["data"]["server.properties"]
        config.write_text(properties.replace("0.0.0.0:9092", f"127.0.0.1:{port}"))
        described.append(Described(container["args"], environment))
        replacements.append(
            {
                "/etc/ottla/server.properties": str(config),
                "/var/lib/ottla": str(tmp_path / f"data-{number}"),
                "etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379": f"127.0.0.1:{etcd.port}",
                f"ottla-{number}.ottla-brokers.ottla.svc:9092": f"127.0.0.1:{port}",
                "0.0.0.0:9464": f"127.0.0.1:{metrics[number]}",
            }
        )
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {named[probe["port"]] for probe in probes} == {9464}
    with run_brokers(described, replacements):
        assert_cluster(ports)
        for port in metrics:
            for path in [*(probe["path"] for probe in probes), "/metrics"]:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                    assert answer.status == 200


def test_the_image_is_checked_by_its_own_command() -> None:
    check = re.search(r"HEALTHCHECK .*\\\n\s+CMD (\[.*\])", (DEPLOY / "docker" / "Dockerfile").read_text())
    assert check is not None
    assert json.loads(check[1])[:2] == ["ottla", "status"]


def test_a_single_broker_is_served_as_its_unit_says(tmp_path: Path) -> None:
    folder = DEPLOY / "systemd" / "single"
    started = re.search(r"^ExecStart=/opt/ottla/bin/ottla serve (.*)$", (folder / "ottla.service").read_text(), re.M)
    assert started is not None
    port, metrics = free_ports(2)
    config = tmp_path / "server.properties"
    text = (folder / "server.properties").read_text().replace("127.0.0.1:9092", f"127.0.0.1:{port}")
    config.write_text(text.replace("/var/lib/ottla", str(tmp_path / "data")))
    by = {"/etc/ottla/server.properties": str(config), "127.0.0.1:9464": f"127.0.0.1:{metrics}"}
    with run_brokers([Described(started[1].split(), {})], [by]):
        assert_cluster([port])


def test_the_brokers_of_the_units_form_a_cluster(etcd: EtcdServer, tmp_path: Path) -> None:
    matched = re.search(
        r"^ExecStart=/opt/ottla/bin/ottla serve (.*)$", (DEPLOY / "systemd" / "ottla.service").read_text(), re.M
    )
    lines = (DEPLOY / "systemd" / "ottla.env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert matched is not None
    arguments = re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], matched[1]).split()
    properties = (DEPLOY / "systemd" / "server.properties").read_text()
    free = free_ports(6)
    ports, metrics = free[:3], free[3:]
    replacements = []
    for number, port in enumerate(ports, 1):
        config = tmp_path / f"server-{number}.properties"
        text = properties.replace("node.id=1", f"node.id={number}").replace("10.0.0.1:9092", f"127.0.0.1:{port}")
        config.write_text(text.replace("/var/lib/ottla", str(tmp_path / f"data-{number}")))
        hosts = "10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"
        replacements.append(
            {
                "/etc/ottla/server.properties": str(config),
                hosts: f"127.0.0.1:{etcd.port}",
                "127.0.0.1:9464": f"127.0.0.1:{metrics[number - 1]}",
            }
        )
    with run_brokers([Described(arguments, {})] * 3, replacements):
        assert_cluster(ports)
        for port in metrics:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
                assert answer.status == 200


# -- schema registry --


def assert_registry(kafka: Kafka, arguments: Sequence[str], program: str) -> None:
    """Run `ottla schema-registry` beside a Kafka until the health check succeeds, and register a schema."""
    (port,) = free_ports(1)
    arguments = [argument.replace("0.0.0.0:8081", f"127.0.0.1:{port}") for argument in arguments]
    arguments = [argument.replace("127.0.0.1:8081", f"127.0.0.1:{port}") for argument in arguments]
    process = subprocess.Popen([sys.executable, "-m", "ottla", "schema-registry", *arguments, "--log-level", "error"])
    try:
        wait_until(lambda: _succeeds(program.replace("127.0.0.1:8081", f"127.0.0.1:{port}")), 30)
        registry = SchemaRegistry(location=f"http://127.0.0.1:{port}")
        assert registry.register("orders-value", Schema("AVRO", '"string"')) == 1
        assert kafka.topics() == ["_schemas"]
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_the_registry_of_the_compose_file_serves(kafka: Kafka) -> None:
    services: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    service = services["schema-registry"]
    assert service["entrypoint"] == ["ottla", "schema-registry"]
    assert service["ports"] == ["127.0.0.1:8081:8081"]
    brokers = ",".join(f"{name}:9092" for name in services if name.startswith("broker-"))
    arguments = [argument.replace(brokers, kafka.bootstrap_servers) for argument in service["command"]]
    assert arguments != service["command"]
    assert_registry(kafka, arguments, service["healthcheck"]["test"][3])
    for name, broker in services.items():
        if name.startswith("broker-"):
            url = broker["environment"]["OTTLA_CONFLUENT_SCHEMA_REGISTRY_URL"]
            assert url == "http://schema-registry:8081"


def test_the_registry_of_the_unit_serves(kafka: Kafka, tmp_path: Path) -> None:
    folder = DEPLOY / "systemd"
    unit = (folder / "ottla-schema-registry.service").read_text()
    started = re.search(r"^ExecStart=/opt/ottla/bin/ottla schema-registry (.*)$", unit, re.M)
    assert started is not None
    properties = tmp_path / "schema-registry.properties"
    text = (folder / properties.name).read_text()
    properties.write_text(text.replace("127.0.0.1:9092", kafka.bootstrap_servers))
    arguments = started[1].replace("/etc/ottla/schema-registry.properties", str(properties)).split()
    program = 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:8081/readyz", timeout=5)'
    assert_registry(kafka, arguments, program)


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_the_registries_of_the_kubernetes_manifest_serve_together(kafka: Kafka) -> None:
    """Changes that are sent to any pod arrive at the one that is elected, and are seen by all."""
    resources = {one["kind"]: one for one in yaml.safe_load_all(KUBERNETES_REGISTRY.read_text())}
    brokers = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(KUBERNETES.read_text())}
    assert ("Service", "ottla") in brokers
    workload = resources["Deployment"]["spec"]
    (container,) = workload["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert resources["Service"]["spec"]["selector"] == workload["template"]["metadata"]["labels"]
    assert resources["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {probe["port"] for probe in probes} == {port["name"]}
    assert container["env"] == [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    assert container["command"][0] == "ottla"
    processes = []
    addresses = [f"127.0.0.1:{free}" for free in free_ports(workload["replicas"])]
    try:
        for address in addresses:
            arguments = [
                expanded(argument, {"POD_IP": "0.0.0.0"})
                .replace(f"0.0.0.0:{port['containerPort']}", address)
                .replace("=ottla:9092", f"={kafka.bootstrap_servers}")
                for argument in container["args"]
            ]
            command = [sys.executable, "-m", *container["command"], *arguments, "--log-level", "error"]
            processes.append(subprocess.Popen(command))
        for address in addresses:
            for probe in probes:
                wait_until(lambda url=f"http://{address}{probe['path']}": status_of(url) == 200, 30)  # type: ignore[misc]
        kafka.wait_for_group("schema-registry", members=len(addresses), timeout=20)
        registries = [SchemaRegistry(location=f"http://{address}") for address in addresses]
        for number, registry in enumerate(registries, 1):
            assert (
                registry.register(f"s{number}", Schema("AVRO", f'{{"type":"fixed","name":"F","size":{number}}}'))
                == number
            )
        for registry in registries:
            wait_until(lambda registry=registry: registry.subjects() == ["s1", "s2"], 10)  # type: ignore[misc]
    finally:
        for process in processes:
            process.terminate()
        assert [process.wait(30) for process in processes] == [0] * len(processes)
