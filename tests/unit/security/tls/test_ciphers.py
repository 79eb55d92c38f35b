"""Cipher suites by their Java and OpenSSL names."""

import ssl

import pytest

from ottla.security.tls.ciphers import (
    TLS_1_2,
    TLS_1_3,
    TLS_1_3_SUITES,
    CipherChoice,
    InvalidCipherSuites,
    choose,
    java_name,
    openssl_name,
)

BOTH = (TLS_1_2, TLS_1_3)
GCM = "ECDHE-RSA-AES256-GCM-SHA384"


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", GCM),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        *((name, name) for name in TLS_1_3_SUITES),
    ],
)
def test_names(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    assert openssl_name(openssl) == openssl
    assert java_name(openssl) == java
    assert openssl in {cipher["name"] for cipher in _all_suites()}


def _all_suites() -> list[dict[str, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return [{"name": str(cipher["name"])} for cipher in context.get_ciphers()]


def test_choices() -> None:
    java = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    assert choose([java, GCM], BOTH) == CipherChoice((GCM,), ())
    assert choose([*TLS_1_3_SUITES, java], BOTH) == CipherChoice((GCM,), TLS_1_3_SUITES)
    assert choose([TLS_1_3_SUITES[0], GCM], [TLS_1_2]) == CipherChoice((GCM,), ())
    assert choose(TLS_1_3_SUITES[:1], BOTH, each_of_tls_1_3=True) == CipherChoice((), TLS_1_3_SUITES[:1])


@pytest.mark.parametrize(
    ("suites", "protocols", "error"),
    [
        (TLS_1_3_SUITES[:2], BOTH, "ssl.cipher.suites leaves out TLS_AES_128_GCM_SHA256, but Python before 3.15"),
        (["TLS_FOO_WITH_BAR"], BOTH, "Unsupported CipherSuite: TLS_FOO_WITH_BAR"),
        ([GCM], [TLS_1_3], f"No cipher suite of {GCM} is one of TLSv1.3"),
    ],
)
def test_choices_that_are_impossible(suites: list[str], protocols: list[str], error: str) -> None:
    with pytest.raises(InvalidCipherSuites, match=error):
        choose(suites, protocols)
