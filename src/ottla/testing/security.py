"""Security of test brokers: a login, TLS, or both, with certificates made by trustme.

The brokers get a listener CLIENT with this security, and a listener INTERNAL without any, for the brokers among themselves.
"""

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.arguments import WrongArgument
from ottla.security.scram import LEAST_ITERATIONS, NAMES, ScramCredential, credential, salt_password
from ottla.testing.calls import checks_calls

_PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES: Final = "org.apache.kafka.common.security"
_LOGIN_MODULES: Final = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
    **dict.fromkeys(NAMES, f"{_MODULES}.scram.ScramLoginModule"),
}
_UNSECURED: Final = f"{_MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_SALT: Final = b"salt of a test broker"


@checks_calls
class Security:
    """Security of test brokers, the value of `security` among their configs.

    protocol     SSL, SASL_PLAINTEXT or SASL_SSL
    mechanism    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER (with unsecured tokens)
    user         user of the clients; with SSL the name in their certificate, CN=user
    password     password of the user
    client_auth  with SSL: clients need a certificate
    directory    PEM files: ca.pem, broker.pem and client.pem (key and chain)

    Raises ValueError, and RuntimeError without trustme.
    """

    def __init__(
        self,
        protocol: str = "SASL_SSL",
        mechanism: str = "PLAIN",
        *,
        user: str = "alice",
        password: str = "alice-secret",
        client_auth: bool = False,
    ) -> None:
        if protocol not in _PROTOCOLS:
            raise ValueError(f"security {protocol}: must be one of {', '.join(_PROTOCOLS)}")
        if mechanism not in _LOGIN_MODULES:
            raise ValueError(f"mechanism {mechanism}: must be one of {', '.join(_LOGIN_MODULES)}")
        self.protocol = protocol
        self.mechanism = mechanism
        self.user = user
        self.client_auth = client_auth
        self._password = password
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-certificates-"))
        weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        if self.has_tls:
            _make_certificates(self.directory, user)

    @property
    def has_tls(self) -> bool:
        """True if clients connect by TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """True if clients log in."""
        return self.protocol.startswith("SASL")

    def broker_configs(self, port: int = 0) -> dict[str, str]:
        """Return the configs of a broker; `port` is that of the listener CLIENT, 0 for a free one."""
        configs = {
            "listeners": f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": f"CLIENT:{self.protocol},INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "connection.failed.authentication.delay.ms": "0",
        }
        if self.has_tls:
            configs |= self._stores("broker") | {"ssl.client.auth": "required" if self.client_auth else "none"}
        if self.has_sasl:
            prefix = f"listener.name.client.{self.mechanism.lower()}.sasl"
            configs["listener.name.client.sasl.enabled.mechanisms"] = self.mechanism
            options = f' user_{self.user}="{self._password}"' if self.mechanism == "PLAIN" else ""
            configs[f"{prefix}.jaas.config"] = f"{_LOGIN_MODULES[self.mechanism]} required{options};"
            if self.mechanism == "OAUTHBEARER":
                configs[f"{prefix}.server.callback.handler.class"] = _UNSECURED
        return configs

    @property
    def client_configs(self) -> dict[str, str]:
        """Return the configs of a client, under Kafka's names, without bootstrap.servers."""
        configs = {"security.protocol": self.protocol}
        if self.has_tls:
            stores = self._stores("client")
            configs |= stores if self.client_auth else {k: v for k, v in stores.items() if "truststore" in k}
        if self.has_sasl:
            options = f'username="{self.user}" password="{self._password}"'
            if self.mechanism == "OAUTHBEARER":
                options = f'unsecuredLoginStringClaim_sub="{self.user}"'
            configs["sasl.mechanism"] = self.mechanism
            configs["sasl.jaas.config"] = f"{_LOGIN_MODULES[self.mechanism]} required {options};"
        return configs

    def credentials(self) -> Mapping[tuple[str, int], ScramCredential]:
        """Return the SCRAM credentials of the user, by user and mechanism; empty for other mechanisms."""
        number = NAMES.get(self.mechanism) if self.has_sasl else None
        if number is None:
            return {}
        key = salt_password(number, self._password.encode(), _SALT, LEAST_ITERATIONS)
        return {(self.user, number): credential(number, _SALT, key, LEAST_ITERATIONS)}

    def _stores(self, owner: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / f"{owner}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
        }


def security_of(configs: Mapping[str, Any]) -> Security | None:
    """Return the security among the configs of a test broker: a Security, the name of a protocol, or none."""
    value = configs.get("security")
    if value is None or isinstance(value, Security):
        return value
    if isinstance(value, str):
        return Security(value)
    raise WrongArgument(f"security must be a Security or the name of a protocol, not {type(value).__name__}")


def _make_certificates(directory: Path, user: str) -> None:
    try:
        import trustme
    except ImportError:
        raise RuntimeError("test brokers with TLS need trustme: pip install trustme") from None
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    broker = authority.issue_cert("localhost", "127.0.0.1", "::1")
    broker.private_key_and_cert_chain_pem.write_to_path(directory / "broker.pem")
    client = authority.issue_cert("client.example", common_name=user)
    client.private_key_and_cert_chain_pem.write_to_path(directory / "client.pem")
