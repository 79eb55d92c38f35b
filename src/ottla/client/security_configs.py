"""Security configs of a client under Kafka's names, and the names that other clients have for them."""

from collections.abc import Callable
from typing import Any, Final

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

SASL_USERNAME: Final = "sasl_username"
SASL_PASSWORD: Final = "sasl_password"
"""Arguments in place of a JAAS text, for PLAIN and SCRAM; they have no dotted name."""


def _protocol(text: str) -> str:
    if text.upper() not in _PROTOCOLS:
        raise ValueError(f"must be one of {', '.join(_PROTOCOLS)}")
    return text.upper()


def _optional(text: str) -> str | None:
    return text or None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _integer(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("must be at least 0")
    return number


def _optional_integer(text: str) -> int | None:
    return _integer(text) if text else None


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        number = float(text)
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}")
        return number

    return parse


def _seconds(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not 0 <= number <= most:
            raise ValueError(f"must be from 0 to {most}")
        return number

    return parse


def _algorithm(text: str) -> str:
    if text not in ("RS256", "ES256"):
        raise ValueError("must be RS256 or ES256")
    return text


SECURITY: Final[dict[str, tuple[Any, Callable[[str], Any]]]] = {
    "security.protocol": ("PLAINTEXT", _protocol),
    "sasl.mechanism": ("GSSAPI", str),
    "sasl.jaas.config": (None, _optional),
    SASL_USERNAME: (None, _optional),
    SASL_PASSWORD: (None, _optional),
    "sasl.client.callback.handler.class": (None, _optional),
    "sasl.login.callback.handler.class": (None, _optional),
    "sasl.login.connect.timeout.ms": (None, _optional_integer),
    "sasl.login.read.timeout.ms": (None, _optional_integer),
    "sasl.login.refresh.buffer.seconds": (300, _seconds(3600)),
    "sasl.login.refresh.min.period.seconds": (60, _seconds(900)),
    "sasl.login.refresh.window.factor": (0.8, _number(0.5, 1.0)),
    "sasl.login.refresh.window.jitter": (0.05, _number(0.0, 0.25)),
    "sasl.login.retry.backoff.ms": (100, _integer),
    "sasl.login.retry.backoff.max.ms": (10_000, _integer),
    "sasl.oauthbearer.assertion.algorithm": ("RS256", _algorithm),
    "sasl.oauthbearer.assertion.claim.aud": (None, _optional),
    "sasl.oauthbearer.assertion.claim.exp.seconds": (300, _seconds(86_400)),
    "sasl.oauthbearer.assertion.claim.iss": (None, _optional),
    "sasl.oauthbearer.assertion.claim.jti.include": (False, _boolean),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": (60, _seconds(3600)),
    "sasl.oauthbearer.assertion.claim.sub": (None, _optional),
    "sasl.oauthbearer.assertion.file": (None, _optional),
    "sasl.oauthbearer.assertion.private.key.file": (None, _optional),
    "sasl.oauthbearer.assertion.private.key.passphrase": (None, _optional),
    "sasl.oauthbearer.assertion.template.file": (None, _optional),
    "sasl.oauthbearer.jwt.retriever.class": (None, _optional),
    "sasl.oauthbearer.token.endpoint.url": (None, _optional),
    "sasl.oauthbearer.client.credentials.client.id": (None, _optional),
    "sasl.oauthbearer.client.credentials.client.secret": (None, _optional),
    "sasl.oauthbearer.header.urlencode": (False, _boolean),
    "sasl.oauthbearer.scope": (None, _optional),
    "ssl.keystore.type": ("JKS", str),
    "ssl.keystore.location": (None, _optional),
    "ssl.keystore.password": (None, _optional),
    "ssl.keystore.key": (None, _optional),
    "ssl.keystore.certificate.chain": (None, _optional),
    "ssl.key.password": (None, _optional),
    "ssl.truststore.type": ("JKS", str),
    "ssl.truststore.location": (None, _optional),
    "ssl.truststore.password": (None, _optional),
    "ssl.truststore.certificates": (None, _optional),
    "ssl.protocol": ("TLSv1.3", str),
    "ssl.enabled.protocols": (("TLSv1.2", "TLSv1.3"), _names),
    "ssl.cipher.suites": ((), _names),
    "ssl.endpoint.identification.algorithm": ("https", str),
}
"""Default and parser of each config."""

CALLABLE: Final = ("sasl.login.callback.handler.class", "interceptor.classes")
"""Configs whose value may be Python functions, classes or objects."""

SECRETS: Final = frozenset(
    (
        "sasl.jaas.config",
        SASL_PASSWORD,
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    )
)
"""Configs of type password: no message shows their values."""

WITHOUT_EFFECT: Final = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Configs of Kafka's clients that tune Java, Kerberos, or a check of tokens that their server repeats."""

_USER: Final = "sasl.jaas.config, sasl_username or sasl_password"
LIBRDKAFKA: Final[dict[str, str]] = {
    "enable.ssl.certificate.verification": "ssl.truststore.location (the certificate of a broker is always verified)",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.config": "sasl.jaas.config",
    "sasl.password": _USER,
    "sasl.username": _USER,
    "ssl.ca.certificate.stores": "ssl.truststore.location",
    "ssl.ca.location": "ssl.truststore.location (with ssl.truststore.type=PEM)",
    "ssl.ca.pem": "ssl.truststore.certificates (with ssl.truststore.type=PEM)",
    "ssl.certificate.location": "ssl.keystore.location (with ssl.keystore.type=PEM: one file with key and chain)",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain (with ssl.keystore.type=PEM)",
    "ssl.key.location": "ssl.keystore.location (with ssl.keystore.type=PEM: one file with key and chain)",
    "ssl.key.pem": "ssl.keystore.key (with ssl.keystore.type=PEM)",
}
"""Names of librdkafka and confluent-kafka -> Kafka's names."""

KAFKA_PYTHON: Final[dict[str, str]] = {
    "sasl.oauth.token.provider": "sasl.login.callback.handler.class",
    "sasl.plain.password": _USER,
    "sasl.plain.username": _USER,
    "ssl.cafile": "ssl.truststore.location (with ssl.truststore.type=PEM)",
    "ssl.certfile": "ssl.keystore.location (with ssl.keystore.type=PEM: one file with key and chain)",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.context": "ssl.truststore.location and ssl.keystore.location",
    "ssl.keyfile": "ssl.keystore.location (with ssl.keystore.type=PEM: one file with key and chain)",
    "ssl.password": "ssl.key.password",
}
"""Names of kafka-python and aiokafka, with dots -> Kafka's names."""
