"""TLS of a client, by its configs: without a trust store it trusts the authorities of the system."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.client.config import ClientConfig
from ottla.client.errors import InvalidClientConfig
from ottla.environment import Transport
from ottla.environment.tls_transport import TlsTransport
from ottla.security.extra import MissingPackage
from ottla.security.tls.contexts import TlsError, TlsSettings, client_context
from ottla.security.tls.stores import KeyStoreSettings, StoreError, TrustStoreSettings

_logger = logging.getLogger("ottla.client")


def tls_settings(config: ClientConfig | Mapping[str, Any]) -> TlsSettings:
    """Return the TLS settings in the configs ssl... of a client."""
    return TlsSettings(
        KeyStoreSettings(
            config["ssl.keystore.type"],
            config["ssl.keystore.location"],
            config["ssl.keystore.password"],
            config["ssl.key.password"],
            config["ssl.keystore.key"],
            config["ssl.keystore.certificate.chain"],
        ),
        TrustStoreSettings(
            config["ssl.truststore.type"],
            config["ssl.truststore.location"],
            config["ssl.truststore.password"],
            config["ssl.truststore.certificates"],
        ),
        protocol=config["ssl.protocol"],
        enabled_protocols=config["ssl.enabled.protocols"],
        cipher_suites=config["ssl.cipher.suites"],
        endpoint_identification=config["ssl.endpoint.identification.algorithm"],
    )


def tls_context(config: ClientConfig | Mapping[str, Any]) -> Any:
    """Return the SSLContext of a client. Raises InvalidClientConfig."""
    settings = tls_settings(config)
    if settings.outdated_protocols:
        _logger.warning("%s of ssl.enabled.protocols is left out", ", ".join(settings.outdated_protocols))
    try:
        return client_context(settings, lambda path: Path(path).read_bytes())
    except (StoreError, TlsError) as cause:
        raise InvalidClientConfig(f"{cause}{f': {cause.reason}' if cause.reason else ''}") from None
    except MissingPackage as cause:
        raise InvalidClientConfig(str(cause)) from None


def secure_transport(config: ClientConfig, transport: Transport) -> Transport:
    """Return `transport` with the TLS of a client. Raises InvalidClientConfig."""
    context = tls_context(config)
    return TlsTransport(transport, lambda: context)
