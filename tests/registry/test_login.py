"""Login and TLS of a registry."""

import base64
import http.client
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from ottla.registry.security import (
    PASSWORDS,
    READ_ONLY_USERS,
    TLS_CERTIFICATE,
    TLS_CLIENT_AUTHORITIES,
    TLS_KEY,
    InvalidSecurity,
    security_of,
)
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.schemas.registry import RegistryError, Schema, SchemaRegistry
from ottla.security.passwords import hash_password
from ottla.testing import Kafka
from tests.registry.client import Answer, Registry
from tests.registry.schemas import ONE


@contextmanager
def serving(kafka: Kafka, **properties: str) -> Iterator[str]:
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0, security=security_of(properties)))
    try:
        thread.run(thread.service.wait_ready())
        yield thread.url
    finally:
        thread.stop()


@pytest.fixture
def passwords(tmp_path: Path) -> str:
    file = tmp_path / "passwords"
    users = {"ada": "secret", "bob": "s:e c:rét"}
    file.write_text(
        "".join(f"{user}:{hash_password(word, b'salt')}\n" for user, word in users.items()), encoding="utf-8"
    )
    return str(file)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


WRONG = {
    "none": {},
    "wrong password": basic("ada", "x"),
    "empty password": basic("ada", ""),
    "unknown user": basic("eve", "secret"),
    "no base64": {"Authorization": "Basic ***"},
    "no UTF-8": {"Authorization": "Basic /w=="},
    "no colon": {"Authorization": f"Basic {base64.b64encode(b'ada').decode()}"},
    "another scheme": {"Authorization": "Bearer secret"},
}


def test_only_users_are_served(kafka: Kafka, passwords: str) -> None:
    with serving(kafka, **{PASSWORDS: passwords}) as url:
        registry = Registry(url)
        for name, headers in WRONG.items():
            answer = registry.ask("GET", "/subjects", headers=headers)
            assert answer.error == (401, 401), name
            assert answer.headers["www-authenticate"].startswith("Basic ")
        for user, password in (("ada", "secret"), ("bob", "s:e c:rét")):
            assert registry.ask("GET", "/subjects", headers=basic(user, password)).value == []
        begin = time.process_time()
        for _ in range(20):
            registry.ask("GET", "/subjects", headers=basic("ada", "secret"))
        assert time.process_time() - begin < 0.5  # the hash is not computed again
        location = url.replace("//", "//ada:secret@")
        assert SchemaRegistry(location=location).register("a", Schema("AVRO", ONE)) == 1
        with pytest.raises(RegistryError, match="401"):
            SchemaRegistry(location=url, retries=0).subjects()


def test_read_only_user_changes_nothing(kafka: Kafka, passwords: str) -> None:
    with serving(kafka, **{PASSWORDS: passwords, READ_ONLY_USERS: "bob, carol"}) as url:
        registry = Registry(url)
        body = {"schema": ONE}

        def ask(user: str, password: str, method: str, path: str, sent: object = None) -> Answer:
            return registry.ask(method, path, sent, basic(user, password))

        assert ask("ada", "secret", "POST", "/subjects/a/versions", body).status == 200
        reading = [
            ("GET", "/subjects", None),
            ("POST", "/subjects/a", body),
            ("POST", "/compatibility/subjects/a/versions/latest", body),
            ("POST", "/contexts/.c/compatibility/subjects/a/versions/latest", body),
        ]
        for method, path, sent in reading:
            assert ask("bob", "s:e c:rét", method, path, sent).status == 200, path
        changing = [
            ("POST", "/subjects/b/versions", body),
            ("POST", "/contexts/.c/subjects/b/versions", body),
            ("POST", "/contexts/compatibility/subjects/b/versions", body),
            ("DELETE", "/subjects/a", None),
            ("PUT", "/config", {"compatibility": "NONE"}),
            ("PUT", "/mode/a", {"mode": "READONLY"}),
        ]
        for method, path, sent in changing:
            assert ask("bob", "s:e c:rét", method, path, sent).error == (403, 403), path
            assert ask("bob", "wrong", method, path, sent).error == (401, 401), path
        assert ask("ada", "secret", "GET", "/subjects").value == ["a"]


class Certificates:
    """An authority, and files with what it has signed."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        server = self.authority.issue_cert("localhost")
        self.certificate, self.key, self.authorities = (
            str(folder / name) for name in ("chain.pem", "key.pem", "ca.pem")
        )
        server.private_key_pem.write_to_path(self.key)
        server.cert_chain_pems[0].write_to_path(self.certificate)
        self.authority.cert_pem.write_to_path(self.authorities)

    def client(self, *, with_certificate: bool) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authorities)
        if with_certificate:
            self.authority.issue_cert("ada@example.com").configure_cert(context)
        return context


def status_of(url: str, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", urlsplit(url).port or 0, timeout=10, context=context)
    try:
        connection.request("GET", "/subjects")
        return connection.getresponse().status
    finally:
        connection.close()


def test_https(kafka: Kafka, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with serving(kafka, **{TLS_CERTIFICATE: certificates.certificate, TLS_KEY: certificates.key}) as url:
        assert url.startswith("https://127.0.0.1:")
        assert status_of(url, certificates.client(with_certificate=False)) == 200
        with pytest.raises(ConnectionError):
            Registry(url.replace("https", "http")).get("/subjects")


def test_client_certificates(kafka: Kafka, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    properties = {TLS_CERTIFICATE: certificates.certificate, TLS_KEY: certificates.key}
    with serving(kafka, **properties, **{TLS_CLIENT_AUTHORITIES: certificates.authorities}) as url:
        assert status_of(url, certificates.client(with_certificate=True)) == 200
        with pytest.raises(OSError):
            status_of(url, certificates.client(with_certificate=False))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({PASSWORDS: "/nowhere"}, "cannot read /nowhere: No such file or directory"),
        ({READ_ONLY_USERS: "bob"}, "schema.registry.read.only.users needs users"),
        ({TLS_KEY: "x"}, "schema.registry.tls.key needs schema.registry.tls.certificate"),
        ({TLS_CLIENT_AUTHORITIES: "x"}, "schema.registry.tls.client.authorities needs"),
        ({TLS_CERTIFICATE: "/nowhere"}, "cannot use the certificate, key or authorities of TLS: No such file"),
        ({"schema.registry.password": "x"}, "unknown property schema.registry.password"),
    ],
)
def test_wrong_properties_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSecurity, match=message):
        security_of(properties)
