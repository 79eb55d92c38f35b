"""Credentials and TLS of this broker as a client of the other brokers of its cluster, by the configs of their listener.

The mechanism is sasl.mechanism.inter.broker.protocol; user and password are options of its JAAS text, as in Kafka. SCRAM works
once a user is in the metadata, which every broker reads before it connects to another one.
"""

from ottla.broker.security.listener_configs import Listener, ListenerValues
from ottla.broker.security.tls_context import peer_context
from ottla.environment import Environment, Transport
from ottla.environment.tls_transport import TlsTransport
from ottla.metadata.configs import BrokerValues, InvalidConfig
from ottla.net.authentication import Credentials
from ottla.net.password_credentials import MissingPassword, password_credentials
from ottla.security.jaas import JaasError, parse_module
from ottla.security.sasl.mechanism import PLAIN
from ottla.security.scram import NAMES
from ottla.tasks.queue import CallbackQueue

_MECHANISM = "sasl.mechanism.inter.broker.protocol"


def peer_credentials(
    values: BrokerValues, listener: Listener, environment: Environment, tasks: CallbackQueue
) -> Credentials | None:
    """Return the credentials of this broker, None for a listener without SASL. Raises InvalidConfig."""
    if not listener.has_sasl:
        return None
    mechanism = values.text(_MECHANISM) or ""
    if mechanism != PLAIN and mechanism not in NAMES:
        what = "GSSAPI, its default: Ottla has no Kerberos" if mechanism == "GSSAPI" else mechanism
        raise InvalidConfig(f"{_MECHANISM} is {what}: set it to one of {', '.join((PLAIN, *NAMES))}")
    config = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = ListenerValues(values, listener.name, mechanism).own_text("sasl.jaas.config")
    if text is None:
        raise InvalidConfig(f"brokers log in to each other by {mechanism}, and {config} is not set")
    try:
        return password_credentials(
            mechanism,
            parse_module(text).options,
            environment.random,
            lambda: environment.workers.start("ottla-login"),
            tasks,
        )
    except (JaasError, MissingPassword) as cause:
        raise InvalidConfig(f"{config}: {cause}") from None


def peer_transport(values: BrokerValues, listener: Listener, transport: Transport) -> Transport:
    """Return `transport`, with the TLS of a listener if it has any: this broker's key is its certificate as a client. Raises
    InvalidConfig.
    """
    if not listener.has_tls:
        return transport
    context = peer_context(ListenerValues(values, listener.name))
    return TlsTransport(transport, lambda: context)
