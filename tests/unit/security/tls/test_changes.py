"""Changes of a broker's certificate; error texts are those of Kafka 4.4."""

import pytest

from ottla.security.tls.changes import IncompatibleCertificate, check_change, subject_alternative_names
from ottla.security.tls.stores import KeyMaterial
from tests.unit.security.tls.certificates import Identity, issue


def material(identity: Identity, alias: str = "kafka") -> KeyMaterial:
    return KeyMaterial(b"", identity.der(), alias=alias)


OLD = material(issue("broker", names=("localhost", "127.0.0.1")))


def test_compatible_certificates() -> None:
    check_change(OLD, OLD)
    check_change(OLD, material(issue("Broker", names=("127.0.0.1", "other", "localhost"))))


def test_another_name() -> None:
    new = material(issue("other", names=("localhost", "127.0.0.1")), "b")
    with pytest.raises(IncompatibleCertificate) as raised:
        check_change(OLD, new)
    assert str(raised.value) == (
        "Keystore DistinguishedName does not match:  existing={alias=kafka, DN=CN=broker}, new={alias=b, DN=CN=other}"
    )
    check_change(OLD, new, allow_dn_changes=True)


def test_a_missing_alternative_name() -> None:
    new = material(issue("broker", names=("localhost", "127.0.0.2")))
    with pytest.raises(IncompatibleCertificate) as raised:
        check_change(OLD, new)
    assert str(raised.value) == (
        "Keystore SubjectAltNames do not match:  existing={alias=kafka, SAN=[[2, localhost], [7, 127.0.0.1]]}, "
        "new={alias=kafka, SAN=[[2, localhost], [7, 127.0.0.2]]}"
    )
    check_change(OLD, new, allow_san_changes=True)
    assert subject_alternative_names(new.chain[0]) == [(2, "localhost"), (7, "127.0.0.2")]
