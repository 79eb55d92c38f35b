"""Principals of clients: by default the SASL user, or the mapped subject of the TLS certificate.

A Python class in principal.builder.class (`package.module:Name`) has a method `build(context: AuthenticationContext) -> str`,
which returns a principal as "User:alice", and may raise ValueError to close the connection.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.broker.plugins import is_python_class, load_class
from ottla.broker.security.listener_configs import ListenerValues
from ottla.broker.security.session import ANONYMOUS
from ottla.metadata.configs import InvalidConfig
from ottla.security.tls.der import MalformedDer
from ottla.security.tls.names import LONGEST_FOR_SLOW_RULES, InvalidRule, NoMatchingRule, PrincipalMapper, subject_name

_logger = logging.getLogger("ottla.broker")
_BUILDER: Final = "principal.builder.class"


class AuthenticationContext(NamedTuple):
    """Authenticated connection.

    listener     name of the listener
    protocol     its security protocol
    address      IP address of the client
    certificate  the client's certificate in DER, None without one
    user         name that the SASL mechanism has authenticated; None without SASL
    """

    listener: str
    protocol: str
    address: str
    certificate: bytes | None = None
    user: str | None = None


PrincipalBuilder = Callable[[AuthenticationContext], str]
"""Returns the principal of a connection. Raises ValueError for a connection that must be closed."""


def principal_builder(values: ListenerValues) -> PrincipalBuilder:
    """Return the principal builder of a listener. Raises InvalidConfig."""
    name = values.text(_BUILDER) or ""
    if is_python_class(name):
        build: PrincipalBuilder = load_class(_BUILDER, name, "build")().build
        return build
    try:
        mapper = PrincipalMapper(values.text("ssl.principal.mapping.rules") or "")
    except InvalidRule as cause:
        raise InvalidConfig(str(cause)) from None
    for rule in mapper.slow_rules:
        _logger.warning(
            "%s of ssl.principal.mapping.rules has a pattern that RE2 lacks (look-ahead or back-reference): it is applied to "
            "names of %d characters at most, as its time may grow exponentially",
            rule,
            LONGEST_FOR_SLOW_RULES,
        )

    def build_default(context: AuthenticationContext) -> str:
        if context.user is not None:
            return f"User:{context.user}"
        if context.certificate is None:
            return ANONYMOUS
        try:
            return f"User:{mapper.name(subject_name(context.certificate))}"
        except (NoMatchingRule, MalformedDer) as cause:
            raise ValueError(str(cause)) from None

    return build_default
