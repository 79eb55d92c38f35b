"""Login and TLS of a registry by properties, for its command and for a broker that serves one."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.security.passwords import InvalidPasswordFile, PasswordFile

PREFIX: Final = "schema.registry."
PASSWORDS: Final = f"{PREFIX}passwords"
READ_ONLY_USERS: Final = f"{PREFIX}read.only.users"
AUTHORIZES: Final = f"{PREFIX}authorize.by.acls"
SUPER_USERS: Final = f"{PREFIX}super.users"
TLS_CERTIFICATE: Final = f"{PREFIX}tls.certificate"
TLS_KEY: Final = f"{PREFIX}tls.key"
TLS_CLIENT_AUTHORITIES: Final = f"{PREFIX}tls.client.authorities"
_KNOWN: Final = (PASSWORDS, READ_ONLY_USERS, AUTHORIZES, SUPER_USERS, TLS_CERTIFICATE, TLS_KEY, TLS_CLIENT_AUTHORITIES)
_OF_CLIENTS: Final = (f"{PREFIX}url", f"{PREFIX}basic.auth.")
"""Properties of clients of a registry, which may be in the same file."""


class InvalidSecurity(ValueError):
    """Properties that do not fit together, or name files that cannot be used."""


class RegistrySecurity(NamedTuple):
    """Users and TLS of a registry.

    passwords    users, None without a login
    read_only    users who may not change anything
    tls          context of the server, None for plain HTTP
    authorizes   whether users may do what the ACLs of the cluster allow, and no more
    super_users  users who may do everything then
    """

    passwords: PasswordFile | None = None
    read_only: frozenset[str] = frozenset()
    tls: ssl.SSLContext | None = None
    authorizes: bool = False
    super_users: frozenset[str] = frozenset()

    @property
    def scheme(self) -> str:
        """Scheme of the registry's address."""
        return "http" if self.tls is None else "https"


def security_of(properties: Mapping[str, str]) -> RegistrySecurity:
    """Return the security that properties describe. Raises InvalidSecurity."""
    unknown = sorted(
        name for name in properties if name.startswith(PREFIX) and not name.startswith((*_KNOWN, *_OF_CLIENTS))
    )
    if unknown:
        raise InvalidSecurity(f"unknown property {unknown[0]}: a registry knows {', '.join(_KNOWN)}")
    passwords = properties.get(PASSWORDS)
    read_only, super_users = _names(properties, READ_ONLY_USERS), _names(properties, SUPER_USERS)
    flag = properties.get(AUTHORIZES, "false").strip().lower()
    if flag not in ("true", "false"):
        raise InvalidSecurity(f"{AUTHORIZES} is true or false, not {flag}")
    for name, is_set in ((READ_ONLY_USERS, read_only), (AUTHORIZES, flag == "true"), (SUPER_USERS, super_users)):
        if is_set and not passwords:
            raise InvalidSecurity(f"{name} needs users: {PASSWORDS}")
    if super_users and flag != "true":
        raise InvalidSecurity(f"{SUPER_USERS} needs {AUTHORIZES}")
    try:
        users = PasswordFile(Path(passwords)) if passwords else None
    except InvalidPasswordFile as wrong:
        raise InvalidSecurity(str(wrong)) from None
    return RegistrySecurity(users, read_only, _context(properties), flag == "true", super_users)


def _names(properties: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(user.strip() for user in properties.get(name, "").split(",")) - {""}


def _context(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    certificate, authorities = properties.get(TLS_CERTIFICATE), properties.get(TLS_CLIENT_AUTHORITIES)
    if not certificate:
        for name in (TLS_KEY, TLS_CLIENT_AUTHORITIES):
            if properties.get(name):
                raise InvalidSecurity(f"{name} needs {TLS_CERTIFICATE}")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, properties.get(TLS_KEY) or None)
        if authorities:
            context.load_verify_locations(authorities)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidSecurity(
            f"cannot use the certificate, key or authorities of TLS: {getattr(error, 'strerror', None) or error}"
        ) from None
    return context
