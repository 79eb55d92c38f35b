"""Principals of certificates: texts of Java's X500Principal.getName(), and the mapping rules of Kafka 4.4."""

import base64
import re
import subprocess
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.tls.der import MalformedDer, alternative_names, read_value, subject
from ottla.security.tls.names import InvalidRule, NoMatchingRule, PrincipalMapper, name_of, subject_name
from tests.unit.security.tls.certificates import JAVA, JAVA_ENVIRONMENT, issue, needs_java

Attribute = x509.NameAttribute


@pytest.mark.parametrize("data", ["", "04", "0403", "04036162", "0481", "048500000000016", "1f8101", "0402616263"])
def test_malformed_values(data: str) -> None:
    with pytest.raises(MalformedDer):
        read_value(bytes.fromhex(data.ljust(len(data) + len(data) % 2, "0")))


def named(*attributes: x509.NameAttribute[str] | list[x509.NameAttribute[str]]) -> str:
    rdns = [x509.RelativeDistinguishedName(entry if isinstance(entry, list) else [entry]) for entry in attributes]
    return name_of(x509.Name(rdns).public_bytes())


def test_a_subject() -> None:
    assert (
        named(
            Attribute(NameOID.COUNTRY_NAME, "DE"),
            Attribute(NameOID.STATE_OR_PROVINCE_NAME, "Bavaria"),
            Attribute(NameOID.LOCALITY_NAME, "Munich"),
            Attribute(NameOID.ORGANIZATION_NAME, "Org"),
            Attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "ServiceUsers"),
            Attribute(NameOID.COMMON_NAME, "Alice.Client"),
        )
        == "CN=Alice.Client,OU=ServiceUsers,O=Org,L=Munich,ST=Bavaria,C=DE"
    )


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("Org, Inc", "Org\\, Inc"),
        (' a"b\\c+d<e>f;g=h#i ', '\\ a\\"b\\\\c\\+d\\<e\\>f\\;g\\=h\\#i\\ '),
        ("  ", "\\ \\ "),
        ("M\u00fcnchen \u65e5", "M\u00fcnchen \u65e5"),
        ("a\0b", "a\\00b"),
    ],
)
def test_escapes(text: str, escaped: str) -> None:
    assert named(Attribute(NameOID.ORGANIZATION_NAME, text)) == f"O={escaped}"


def test_other_attributes() -> None:
    assert (
        named(
            Attribute(NameOID.DOMAIN_COMPONENT, "org"),
            Attribute(NameOID.STREET_ADDRESS, "x"),
            [Attribute(NameOID.USER_ID, "u"), Attribute(NameOID.COMMON_NAME, "c")],
        )
        == "CN=c+UID=u,STREET=x,DC=org"
    )
    assert named(Attribute(NameOID.EMAIL_ADDRESS, "a@b.c")) == "1.2.840.113549.1.9.1=#16056140622e63"
    assert named(Attribute(x509.ObjectIdentifier("1.2.3"), "x")) == "1.2.3=#0c0178"
    assert named() == ""


def test_the_subject_of_a_certificate() -> None:
    ca = issue("The CA", names=("localhost", "127.0.0.1"))
    assert subject_name(ca.der()[0]) == "CN=The CA"
    assert [(name.tag, name.content) for name in alternative_names(ca.der()[0])] == [
        (0x82, b"localhost"),
        (0x87, b"\x7f\0\0\x01"),
    ]
    assert alternative_names(issue("x").der()[0]) == []


CERTIFICATE = issue("name", names=("a",)).der()[0]


@given(st.integers(0, len(CERTIFICATE)), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3))
def test_damaged_certificates(size: int, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(CERTIFICATE[:size])
    for position, byte in changes:
        if damaged:
            damaged[position % len(damaged)] = byte
    for read in (subject_name, subject, alternative_names):
        try:
            read(bytes(damaged))
        except MalformedDer:
            continue


TYPES = [
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS,
    NameOID.SURNAME,
    NameOID.STREET_ADDRESS,
]
JAVA_PROGRAM = """
import java.io.*; import java.util.*; import javax.security.auth.x500.X500Principal;
public class Names {
  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String name = new X500Principal(Base64.getDecoder().decode(line)).getName();
      System.out.println(Base64.getEncoder().encodeToString(name.getBytes("UTF-8")));
    }
  }
}
"""


@needs_java
def test_names_are_those_of_java(tmp_path: Path) -> None:
    assert JAVA is not None
    program = tmp_path / "Names.java"
    program.write_text(JAVA_PROGRAM)
    texts = [
        "a",
        " a ",
        "  ",
        "a,b",
        '"',
        "\\",
        "#a",
        "a=b+c;d<e>",
        "\u00fc\u65e5\U0001f600",
        "a\0b",
        "\r\n\t a\r",
        "-",
    ]
    encodings = [x509.name._ASN1Type.UTF8String, x509.name._ASN1Type.PrintableString, x509.name._ASN1Type.T61String]
    names = []
    for text in texts:
        for identifier in TYPES:
            for encoding in encodings if text.isascii() else encodings[:1]:
                attribute = Attribute(identifier, text, encoding)
                other = Attribute(NameOID.LOCALITY_NAME, "x")
                names += [
                    x509.Name([attribute, other]),
                    x509.Name([x509.RelativeDistinguishedName([attribute, other])]),
                ]
    encoded = [name.public_bytes() for name in names]
    lines = "".join(base64.b64encode(name).decode() + "\n" for name in encoded)
    answer = subprocess.run(
        [JAVA, str(program)], input=lines, capture_output=True, text=True, check=True, env=JAVA_ENVIRONMENT
    )
    expected = [base64.b64decode(line).decode() for line in answer.stdout.split("\n")[:-1]]
    assert [name_of(name) for name in encoded] == expected
    assert len(expected) > 200


DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@x/U", "DUKE@X"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@X/L", "duke@x"),
        ("RULE:CN=Duke/x/,DEFAULT", DUKE),
        ("RULE:^CN=zz$/x/, RULE:^CN=([^,]*),OU=([^,]*),.*$/$2\\/$1/ ,DEFAULT", "ServiceUsers/Duke"),
        (",,DEFAULT,", DUKE),
        ("RULE:^CN=(.*?),.*$/$1 $2 $12 \\$1 $0/", f"Duke $2 Duke2 $1 {DUKE}"),
        ("RULE:^(.*)$/x/", "x"),
        ("RULE:.*/x/", "xx"),  # as in Java, the empty end matches once more
        ("RULE:^CN=(.*?),.*(XY)?$/$1$2/", "Duke"),
    ],
)
def test_rules(rules: str, name: str) -> None:
    assert PrincipalMapper(rules).name(DUKE) == name


def test_a_rule_takes_time_linear_in_the_name() -> None:
    begun = time.process_time()
    with pytest.raises(NoMatchingRule):
        PrincipalMapper("RULE:^CN=(a|a)*(a*)*b$/x/").name("CN=" + "a" * 5_000)
    assert time.process_time() - begun < 1


def test_a_rule_that_re2_lacks_is_applied_to_short_names_only() -> None:
    mapper = PrincipalMapper("RULE:^CN=(?!admin)(.*)$/$1/,DEFAULT")
    assert mapper.slow_rules == ["RULE:^CN=(?!admin)(.*)$/$1"]
    assert mapper.name("CN=x") == "x"
    assert mapper.name("CN=admin") == "CN=admin"
    with pytest.raises(NoMatchingRule, match="too long"):
        mapper.name("CN=" + "x" * 1_022)
    assert PrincipalMapper("RULE:^CN=(.*)$/$1/").slow_rules == []


@pytest.mark.parametrize("rules", ["", "RULE:^CN=zz$/x/", "RULE:CN=Duke/x/"])
def test_no_rule_applies(rules: str) -> None:
    with pytest.raises(NoMatchingRule) as raised:
        PrincipalMapper(rules).name(DUKE)
    assert str(raised.value) == f"No rules apply to {DUKE}, rules [{rules.removesuffix('/')}]"


@pytest.mark.parametrize("replacement", ["$", "$x", "$1"])
def test_an_invalid_replacement_is_no_name(replacement: str) -> None:
    with pytest.raises(NoMatchingRule, match=r"Illegal group reference|No group 1"):
        PrincipalMapper(f"RULE:^CN.*$/{replacement}/").name(DUKE)


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ("FOO", "Invalid rule: `FOO`, unmatched substring: `FOO`"),
        ("DEFAULT,RULE:a/b", "Invalid rule: `RULE:a/b`, unmatched substring: `RULE:a/b`"),
        ("RULE:^CN=(.*)$/$1/LU", "Invalid rule: `RULE:^CN=(.*)$/$1/LU`, unmatched substring: `U`"),
        ("RULE:(/x/", "Invalid rule: RULE:(/x/: missing ), unterminated subpattern at position 0"),
    ],
)
def test_invalid_rules(rules: str, error: str) -> None:
    with pytest.raises(InvalidRule, match=f"^{re.escape(error)}$"):
        PrincipalMapper(rules)
