"""TLS and SASL of one listener, built from its configs when the broker starts."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.connections.connection import ServedConnection
from ottla.broker.connections.memory import FrameTurns
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.security.listener_configs import Listener, ListenerValues, inter_broker_listener
from ottla.broker.security.login import Login, Mechanism
from ottla.broker.security.principals import AuthenticationContext, PrincipalBuilder, principal_builder
from ottla.broker.security.sasl_mechanisms import CredentialSource, mechanisms
from ottla.broker.security.session import Session
from ottla.broker.security.tls_context import ListenerTls
from ottla.broker.security.tokens import TokenLogins, token_secret
from ottla.environment import Environment
from ottla.environment.tls_serving import TlsListener
from ottla.metadata.configs import InvalidConfig
from ottla.protocol.connection import Envelope
from ottla.security.sasl.mechanism import ServerExchange
from ottla.security.scram import CredentialForm, ScramCredential


class ListenerSecurity:
    """TLS and SASL of one listener.

    protocol          security protocol of the listener
    tls               None on a listener without TLS
    certificates      makes the TLS context; None on a listener without TLS
    mechanisms        SASL mechanisms by name; empty on a listener without SASL
    receive_limit     maximum size of a frame before the login, in bytes: sasl.server.max.receive.size
    refusal_delay_ms  connection.failed.authentication.delay.ms
    """

    def __init__(
        self,
        protocol: str,
        certificates: ListenerTls | None,
        mechanisms: Mapping[str, Mechanism],
        build_principal: PrincipalBuilder,
        receive_limit: int,
        refusal_delay_ms: int,
    ) -> None:
        self.protocol = protocol
        self.certificates = certificates
        self.tls: TlsListener | None = None if certificates is None else certificates.listener
        self.mechanisms = mechanisms
        self._build_principal = build_principal
        self._receive_limit = receive_limit
        self._refusal_delay_ms = refusal_delay_ms

    def close(self) -> None:
        """End all timers and workers."""
        if self.certificates is not None:
            self.certificates.close()
        for mechanism in self.mechanisms.values():
            mechanism.close()

    def principal_of(self, session: Session, *, certificate: bytes | None = None, user: str | None = None) -> str:
        """Return the principal of a connection that TLS or SASL has authenticated. Raises ValueError, also for a name that
        cannot be encoded: no ACL, quota or log line could name it.
        """
        principal = self._build_principal(
            AuthenticationContext(session.listener, session.protocol, session.peer_address, certificate, user)
        )
        principal.encode()
        return principal

    def require_login(
        self,
        connection: ServedConnection,
        pipeline: Pipeline,
        turns: FrameTurns,
        authenticated: Callable[[ServerExchange], None],
        refused: Callable[[str], object],
    ) -> None:
        """Serve the requests of a connection only after a login by SASL; `refused` is called with the reason of a failure.

        turns  turns of frames before the login
        """

        def serve(envelope: Envelope) -> Any:
            return pipeline.answer(envelope, connection.session.context(envelope))

        login = Login(self.mechanisms, serve, authenticated)
        connection.require_login(login, turns, self._receive_limit, self._refusal_delay_ms, refused)


def secure_listener(listener: Listener, broker: Broker, environment: Environment) -> ListenerSecurity:
    """Return TLS and SASL of a listener, by the configs of its broker. Raises InvalidConfig."""

    def current() -> ListenerValues:
        return ListenerValues(broker.config, listener.name)

    values = current()
    certificates = None
    if listener.has_tls:
        between = inter_broker_listener(broker.config, broker.config.listeners)
        serves_brokers = between is not None and between.name == listener.name
        try:
            certificates = ListenerTls(
                listener.name,
                current,
                environment,
                broker.tasks,
                has_sasl=listener.has_sasl,
                serves_brokers=serves_brokers,
            )
        except InvalidConfig as cause:
            raise InvalidConfig(f"listener {listener.name}: {cause}") from None
        tls = certificates
        broker.config_preparations.append(lambda config: tls.prepare(ListenerValues(config, listener.name)))
        broker.config_checks.append(lambda config: tls.check(ListenerValues(config, listener.name)))
    return ListenerSecurity(
        listener.protocol,
        certificates,
        mechanisms(broker.config, listener.name, _credential_source(broker), environment) if listener.has_sasl else {},
        principal_builder(values),
        values.integer("sasl.server.max.receive.size"),
        values.integer("connection.failed.authentication.delay.ms"),
    )


def _credential_source(broker: Broker) -> CredentialSource:
    def nonce() -> bytes:
        return broker.random.bytes16() + broker.random.bytes16()

    counted: Mapping[tuple[str, int], ScramCredential] | None = None
    counts: dict[int, Counter[CredentialForm]] = {}

    def forms(mechanism: int) -> Mapping[CredentialForm, int]:
        nonlocal counted
        credentials = broker.image.credentials
        if credentials is not counted:
            counted = credentials
            counts.clear()
            for (_, number), known in credentials.items():
                counts.setdefault(number, Counter())[CredentialForm.of(known)] += 1
        return counts.get(mechanism, {})

    secret = token_secret(broker)
    return CredentialSource(
        lambda user, mechanism: broker.image.credentials.get((user, mechanism)),
        None if secret is None else TokenLogins(broker, secret).login,
        nonce,
        lambda: broker.image.secret,
        forms,
    )
