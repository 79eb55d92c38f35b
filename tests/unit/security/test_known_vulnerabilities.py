"""Vulnerabilities of Apache Kafka that docs/security.md lists: those for which there is no other test."""

import hmac
import inspect
from pathlib import Path

import pytest

from ottla.broker.config import BrokerConfig
from ottla.broker.security.sasl_mechanisms import CredentialSource, mechanisms
from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig
from ottla.environment.process import process_environment
from ottla.environment.web import CannotFetch, fetch
from ottla.metadata.configs import InvalidConfig
from ottla.security.sasl import plain, scram
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.plain import PlainServer

MODULES = "org.apache.kafka.common.security"
PROVIDERS = "org.apache.kafka.common.config.provider"


def test_passwords_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153."""
    compared = []

    def record(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", record)
    with pytest.raises(AuthenticationFailed):
        PlainServer({"alice": "secret"}).step(b"\0alice\0guess", 0)
    assert compared == [(b"guess", b"secret")]
    for module in (plain, scram):  # tokens are looked up by their whole secret, in a table with keyed hashes
        assert "hmac.compare_digest" in inspect.getsource(module)


def test_tokens_are_not_accepted_without_the_keys_to_check_them() -> None:
    """CVE-2026-33557, CVE-2026-110985: a broker that lacks the URL of the keys does not start."""
    import asyncio

    loop = asyncio.new_event_loop()
    loop.close()
    prefix = "listener.name.a.oauthbearer."
    config = BrokerConfig(
        {
            "listener.name.a.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            f"{prefix}sasl.server.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            f"{prefix}sasl.oauthbearer.expected.audience": "kafka",
            f"{prefix}sasl.oauthbearer.expected.issuer": "https://issuer",
        }
    )
    source = CredentialSource(lambda user, mechanism: None, None, lambda: bytes(32), lambda: b"secret")
    with pytest.raises(InvalidConfig, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url value is required"):
        mechanisms(config, "A", source, process_environment(loop))


def test_config_providers_of_clients_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2024-31141: where configs come from others, they must not read files."""
    (tmp_path / "secret").write_text("s3cret")
    configs = {
        "bootstrap.servers": "a:1",
        "config.providers": "d",
        "config.providers.d.class": f"{PROVIDERS}.DirectoryConfigProvider",
        "client.id": f"${{d:{tmp_path}:secret}}",
    }
    assert ClientConfig(configs)["client.id"] == "s3cret"
    monkeypatch.setenv("OTTLA_CLIENT_CONFIG_PROVIDERS", "none")
    with pytest.raises(InvalidClientConfig, match="switched off by the environment variable"):
        ClientConfig(configs)


def test_a_secret_of_a_client_is_never_a_placeholder() -> None:
    with pytest.raises(InvalidClientConfig, match=r"config\.providers names no provider env"):
        ClientConfig({"bootstrap.servers": "a:1", "sasl_password": "${env:PASSWORD}"})


def test_urls_of_tokens_can_be_restricted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2025-27817: where configs come from others, they must not name any file or server."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    assert fetch(secret.as_uri()) == b"s3cret"
    monkeypatch.setenv("OTTLA_OAUTH_URLS", "https://login.example.com/token, https://other")
    with pytest.raises(CannotFetch, match="is not in the environment variable OTTLA_OAUTH_URLS"):
        fetch(secret.as_uri())
    monkeypatch.setenv("OTTLA_OAUTH_URLS", f"https://other, {secret.as_uri()}")
    assert fetch(secret.as_uri()) == b"s3cret"
