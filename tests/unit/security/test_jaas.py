"""JAAS values and files; the expected results are those of Kafka 4.4 and its JDK for the same text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.jaas import (
    JaasError,
    LoginModule,
    client_modules,
    parse_file,
    parse_module,
    parse_modules,
    server_modules,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "parsed"),
    [
        ("username='a b' password=\"c\"", {"username": "a b", "password": "c"}),
        ("username=alice-1.x_$ password=ü", {"username": "alice-1.x_$", "password": "ü"}),
        ('password="a\\"b\\\\c\\n\\101\\7z"', {"password": 'a"b\\c\nA\x07z'}),
        ('"user_c@d"="y" user_b=\'\'', {"user_c@d": "y", "user_b": ""}),
        ("a=b // c=d\n /* e=f\n */ g=h", {"a": "b", "g": "h"}),
        ("a=b/c=d\n g=h", {"a": "b", "g": "h"}),
        ("a=\n\tb a=c", {"a": "c"}),
        ("a=b /\nc=d\n e=f", {"a": "b", "e": "f"}),
        ('a="\\477\\3777"', {"a": "'7\xff7"}),
        ('a="b\n g=h', {"a": "b", "g": "h"}),
        ("", {}),
    ],
)
def test_options(options: str, parsed: dict[str, str]) -> None:
    assert parse_module(f"{PLAIN} Required {options}\n;") == LoginModule(PLAIN, "REQUIRED", parsed)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Login module not specified in JAAS config"),
        ("// nothing", "Login module not specified in JAAS config"),
        (PLAIN, "Login module control flag not specified in JAAS config"),
        (f"{PLAIN};", "Login module control flag is not available in the JAAS config"),
        (f"{PLAIN} must;", "Invalid login module control flag 'must' in JAAS config"),
        (f"{PLAIN} required", "JAAS config entry not terminated by semi-colon"),
        (f"{PLAIN} required password=123;", "Value not specified for key 'password' in JAAS config"),
        (f"{PLAIN} required password=-1;", "Value not specified for key 'password' in JAAS config"),
        (f"{PLAIN} required password=1a;", "Value not specified for key 'password' in JAAS config"),
        (f"{PLAIN} required a@b=c;", "Value not specified for key 'a' in JAAS config"),
        (f"{PLAIN} required a;", "Value not specified for key 'a' in JAAS config"),
        (f"{PLAIN} required; {PLAIN} required;", "JAAS config property contains 2 login modules, should be 1 module"),
    ],
)
def test_invalid_values(text: str, error: str) -> None:
    with pytest.raises(JaasError) as raised:
        parse_module(text)
    assert str(raised.value) == error


def test_all_flags() -> None:
    modules = parse_modules("a required; b Requisite; c sufficient; d OPTIONAL;")
    assert [module.flag for module in modules] == ["REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"]


def test_forbidden_modules() -> None:
    jndi = "com.sun.security.auth.module.JndiLoginModule"
    with pytest.raises(JaasError, match=f"{jndi} is not allowed. Update System property"):
        parse_module(f"{jndi} required;")
    assert parse_module(f"{jndi} required;", allowed=[PLAIN, jndi]).name == jndi
    with pytest.raises(JaasError, match=r"a\.Other is not allowed"):
        parse_module("a.Other required;", allowed=[PLAIN])


FILE = f"""
KafkaServer {{
  {PLAIN} required
    user_a="x";
  a.Second optional;
}};
plaintext.KafkaServer {{ {PLAIN} sufficient user_b="y"; }};
KafkaClient {{ {PLAIN} required username="a"; }};
"""


def test_contexts_of_a_file() -> None:
    contexts = parse_file(FILE)
    assert list(contexts) == ["KafkaServer", "plaintext.KafkaServer", "KafkaClient"]
    assert server_modules(contexts, "SSL") == [
        LoginModule(PLAIN, "REQUIRED", {"user_a": "x"}),
        LoginModule("a.Second", "OPTIONAL", {}),
    ]
    assert server_modules(contexts, "PLAINTEXT") == [LoginModule(PLAIN, "SUFFICIENT", {"user_b": "y"})]
    assert client_modules(contexts) == [LoginModule(PLAIN, "REQUIRED", {"username": "a"})]


def test_a_missing_context() -> None:
    with pytest.raises(JaasError) as raised:
        server_modules({}, "PLAINTEXT")
    assert str(raised.value) == (
        "Could not find a 'KafkaServer' or 'plaintext.KafkaServer' entry in the JAAS configuration. "
        "System property 'java.security.auth.login.config' is not set"
    )
    with pytest.raises(JaasError, match=r"Could not find a 'KafkaClient' entry .* is /etc/jaas.conf"):
        client_modules({}, "/etc/jaas.conf")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("KafkaServer\n a", "Configuration Error:\n\tLine 2: expected [{], found [a]"),
        ("KafkaServer {", "Configuration Error:\n\texpected [module class name], read [end of file]"),
        ("KafkaServer { a.B must; };", "Configuration Error:\n\tInvalid control flag, MUST"),
        ("KafkaServer { a.B required c='d'; };", "Configuration Error:\n\tLine 1: expected [option value], found [d]"),
        ("KafkaServer { a.B required }", "Configuration Error:\n\tLine 1: expected [option key]"),
        ("A { }; A { };", "Configuration Error:\n\tCan not specify multiple entries for A"),
    ],
)
def test_invalid_files(text: str, error: str) -> None:
    with pytest.raises(JaasError) as raised:
        parse_file(text)
    assert str(raised.value) == error


@given(st.text(alphabet=st.sampled_from("ab{}=;\"'\\/*.-$_1 \n\r\u00fc\u0085")))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for parse in (parse_modules, parse_file):
        try:
            parse(text)
        except JaasError:
            continue


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_quoted_options_are_read_back(options: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + "".join(f"\\{ord(char):03o}" if char < " " or char in '"\\' else char for char in text) + '"'

    text = " ".join(f"{quoted(key)}={quoted(value)}" for key, value in options.items())
    assert parse_module(f"a required {text};").options == options
