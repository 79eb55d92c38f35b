"""Brokers over an etcd that requires TLS and client certificates."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import ottla
from tests.etcd_server import EtcdServer

from .test_bad_input import refused
from .test_etcd_cluster import Brokers


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1", "localhost", common_name=name)
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    files = ("--cert-file", "server.pem"), ("--key-file", "server.key"), ("--trusted-ca-file", "ca.pem")
    options = [word for option, name in files for word in (option, str(tmp_path / name))]
    server = EtcdServer(tmp_path / "etcd", *options, "--client-cert-auth", tls=context)
    server.start()
    yield server
    server.kill()


def url(etcd: EtcdServer, directory: Path, *names: str) -> str:
    files = {"cacert": "ca.pem", "cert": "client.pem", "key": "client.key"}
    parameters = "&".join(f"{name}={directory / files[name]}" for name in names)
    return etcd.url().replace("etcd://", "etcds://") + (f"?{parameters}" if parameters else "")


def test_a_cluster_forms(etcd: EtcdServer, tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, url(etcd, tmp_path, "cacert", "cert", "key"))
    try:
        for node_id in (1, 2):
            brokers.start(node_id)
        with ottla.Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
            assert len(admin.describe_cluster().nodes) == 2
            admin.create_topics([ottla.NewTopic("t", 2, 2)]).check()
        with ottla.Producer(bootstrap_servers=brokers.bootstrap_servers) as producer:
            producer.produce("t", "v")
            producer.flush()
    finally:
        brokers.end()


def test_wrong_certificate_files_are_refused(etcd: EtcdServer, tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    missing = f"{etcd.url().replace('etcd://', 'etcds://')}?cacert={tmp_path / 'missing.pem'}"
    assert "missing.pem" in refused(*data, "--cluster", missing)
    untrusted = url(etcd, tmp_path, "cert", "key")
    assert "certificate verify failed" in refused(*data, "--cluster", untrusted)
    assert "certificate" in refused(*data, "--cluster", url(etcd, tmp_path, "cacert"))
