"""Without the extra `ottla[security]`: one line that names it, and all that needs no package goes on."""

import subprocess
import sys
import textwrap

import pytest

from ottla.extras import install_command

PROLOGUE = """
import sys
for name in ("joserfc", "cryptography", "certifi"):
    sys.modules[name] = None
import ssl
from ottla.security import delegation_tokens, jaas
from ottla.security.sasl import oauthbearer, plain, scram, unsecured, jwt
from ottla.security.tls import changes, ciphers, contexts, names, stores
"""


def run(code: str) -> str:
    """Run code where the packages are not installed; returns the last line of its errors."""
    result = subprocess.run([sys.executable, "-c", PROLOGUE + textwrap.dedent(code)], capture_output=True, text=True)
    return (result.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize(
    ("code", "feature", "package"),
    [
        ("jwt.JwtValidator('{}', jwt.JwtSettings())", "OAUTHBEARER with signed tokens", "joserfc"),
        ("jwt.client_assertion(jwt.AssertionSettings(), b'', None, 0)", "A client assertion", "joserfc"),
        (
            "stores.load_trusted(stores.TrustStoreSettings('PKCS12', 't', 'x'), lambda path: b'0000')",
            "A PKCS12 store",
            "cryptography",
        ),
        (
            """
            ssl.get_default_verify_paths = lambda: ssl.DefaultVerifyPaths(None, None, "", "", "", "")
            contexts.client_context(contexts.TlsSettings(), None)
            """,
            "TLS without ssl.truststore.location and without CA certificates of the system",
            "certifi",
        ),
    ],
)
def test_a_missing_package(code: str, feature: str, package: str) -> None:
    line = run(code)
    assert line == f"ottla.security.extra.MissingPackage: {feature} needs {package}: {install_command('security')}"


def test_the_rest_needs_no_package() -> None:
    assert (
        run("ciphers.openssl_name('TLS_AES_128_GCM_SHA256'); contexts.client_context(contexts.TlsSettings(), None)")
        == ""
    )
