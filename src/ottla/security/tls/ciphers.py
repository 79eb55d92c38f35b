"""Cipher suites (ssl.cipher.suites): names as in Java and as in OpenSSL, and what Python's ssl can choose.

    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384   Java, IANA
    ECDHE-RSA-AES256-GCM-SHA384             OpenSSL
    TLS_AES_256_GCM_SHA384                  TLS 1.3, the same in both

As in Java, a list without suites of a protocol version switches that version off. Before Python 3.15 the suites of TLS 1.3
cannot be chosen singly: a list has to have all three or none of them, and any other is refused if TLS 1.3 is enabled.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_SUITE: Final = re.compile(
    r"TLS_(?:(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|DHE_DSS|RSA)_WITH_)"
    r"(?:AES_(?P<size>128|256)_(?P<mode>GCM|CBC|CCM_8|CCM)(?:_(?P<mac>SHA384|SHA256|SHA))?|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)
_IANA_NAME: Final = re.compile(r"(TLS|SSL)_\w+")


class InvalidCipherSuites(ValueError):
    """Cipher suites that are unknown, or cannot be chosen."""


class CipherChoice(NamedTuple):
    """Chosen cipher suites by their OpenSSL names.

    tls_1_2  suites for set_ciphers; empty if TLS 1.2 is off
    tls_1_3  suites of TLS 1.3; empty if TLS 1.3 is off
    """

    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]

    @property
    def is_default_of_tls_1_3(self) -> bool:
        """Return True if all suites of TLS 1.3 are chosen, or none."""
        return len(self.tls_1_3) in (0, len(TLS_1_3_SUITES))


def openssl_name(suite: str) -> str:
    """Return the OpenSSL name of a suite, which may have either name. Raises InvalidCipherSuites."""
    if suite in TLS_1_3_SUITES or _IANA_NAME.fullmatch(suite) is None:
        return suite
    fields = _SUITE.fullmatch(suite)
    if fields is None:
        raise InvalidCipherSuites(f"Unsupported CipherSuite: {suite}")
    exchange = fields["exchange"].replace("_", "-")
    parts = [] if exchange == "RSA" else [exchange]
    if fields["chacha"] is not None:
        parts.append("CHACHA20-POLY1305")
    else:
        parts.append(f"AES{fields['size']}")
        # Names of OpenSSL have no CBC, and no hash with CCM.
        if fields["mode"] != "CBC":
            parts.append(fields["mode"].replace("_", ""))
        if fields["mac"] is not None:
            parts.append(fields["mac"])
    return "-".join(parts)


def java_name(suite: str) -> str:
    """Return the Java name of a suite of TLS 1.2 or 1.3 with an OpenSSL name; an unknown one as it is."""
    return _JAVA_NAMES.get(suite, suite)


def _java_names() -> dict[str, str]:
    ciphers = ("AES_256_GCM_SHA384", "AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256", "AES_256_CBC_SHA384",
               "AES_256_CBC_SHA256", "AES_128_CBC_SHA256", "AES_256_CBC_SHA", "AES_128_CBC_SHA")  # fmt: skip
    exchanges = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "DHE_DSS", "RSA")
    names = [f"TLS_{exchange}_WITH_{cipher}" for exchange in exchanges for cipher in ciphers]
    return {openssl_name(name): name for name in names}


_JAVA_NAMES: Final = _java_names()


def choose(suites: Sequence[str], protocols: Sequence[str], *, each_of_tls_1_3: bool = False) -> CipherChoice:
    """Return the choice of suites for the enabled protocols. Raises InvalidCipherSuites.

    suites           names of either kind; must not be empty
    each_of_tls_1_3  suites of TLS 1.3 can be chosen singly
    """
    names = tuple(dict.fromkeys(openssl_name(suite) for suite in suites))
    tls_1_3 = tuple(name for name in names if name in TLS_1_3_SUITES) if TLS_1_3 in protocols else ()
    tls_1_2 = tuple(name for name in names if name not in TLS_1_3_SUITES) if TLS_1_2 in protocols else ()
    choice = CipherChoice(tls_1_2, tls_1_3)
    if not tls_1_2 and not tls_1_3:
        raise InvalidCipherSuites(f"No cipher suite of {', '.join(suites)} is one of {', '.join(protocols)}")
    if not each_of_tls_1_3 and not choice.is_default_of_tls_1_3:
        left_out = ", ".join(name for name in TLS_1_3_SUITES if name not in tls_1_3)
        raise InvalidCipherSuites(
            f"ssl.cipher.suites leaves out {left_out}, but Python before 3.15 enables all suites of TLSv1.3 or none"
        )
    return choice
