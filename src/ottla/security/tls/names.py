"""Principals from certificates: the subject as text, and ssl.principal.mapping.rules (KIP-371).

The text is that of Java's X500Principal.getName(), RFC 2253: the last attribute first, `CN=Alice,OU=Users,O=Org\\, Inc`.
Attributes of RFC 2253 have names, all others are numbers with their value in hexadecimal, `1.2.840.113549.1.9.1=#1603...`.

A mapping rule is `RULE:pattern/replacement/[L|U]` or DEFAULT. Patterns are regular expressions of RE2, as the subject comes
from a client. One that RE2 lacks (look-ahead, back-reference) is Python's, with subjects of 1,024 characters at most; these
features of Java's have no counterpart in either: `[a&&b]`, `\\R`.
"""

import re
from typing import Any, Final, NamedTuple

from ottla.regexes import InvalidRegex, compiled
from ottla.security.tls.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    MalformedDer,
    Value,
    object_identifier,
    read_value,
    subject,
)

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXT_TAGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""Tags of texts: UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
DEFAULT_RULES: Final = "DEFAULT"
LONGEST_FOR_SLOW_RULES: Final = 1024
"""Characters of a subject that a rule which is not RE2 is applied to."""
_RULE_PATTERN: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE_PATTERN})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE_PATTERN)
_REFERENCE: Final = re.compile(r"\\(.)?|\$([0-9]*)", re.DOTALL)


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER as text. Raises MalformedDer."""
    return name_of(subject(certificate))


def name_of(name: bytes) -> str:
    """Return a distinguished name in DER as text. Raises MalformedDer."""
    parts = [_relative_name(part) for part in read_value(name, SEQUENCE).values()]
    return ",".join(reversed(parts))


def _relative_name(value: Value) -> str:
    if value.tag != SET:
        raise MalformedDer("a distinguished name has only sets")
    return "+".join(_attribute(attribute) for attribute in value.values())


def _attribute(value: Value) -> str:
    parts = value.values()
    if value.tag != SEQUENCE or len(parts) != 2 or parts[0].tag != OBJECT_IDENTIFIER:
        raise MalformedDer("an attribute has a type and a value")
    identifier = object_identifier(parts[0].content)
    keyword = _KEYWORDS.get(identifier)
    if keyword is None or parts[1].tag not in _TEXT_TAGS:
        return f"{keyword or identifier}=#{parts[1].encoded.hex()}"
    # Java takes all texts for UTF-8, also those in other encodings.
    return f"{keyword}={_escape(parts[1].content.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in _ESCAPED else char for char in text).replace("\0", "\\00")
    begin = len(escaped) - len(escaped.lstrip(" \r"))
    end = max(begin, len(escaped.rstrip(" \r")))
    outer = (f"\\{char}" for char in escaped[:begin]), (f"\\{char}" for char in escaped[end:])
    return "".join((*outer[0], escaped[begin:end], *outer[1]))


class InvalidRule(ValueError):
    """A mapping rule with a syntax error."""


class NoMatchingRule(Exception):
    """A subject to which no mapping rule applies; the connection is closed."""


class _Rule(NamedTuple):
    pattern: Any
    replacement: str
    case: str

    @property
    def is_linear(self) -> bool:
        """Return whether it takes time linear in the subject."""
        return not isinstance(self.pattern, re.Pattern)


class PrincipalMapper:
    """Mapping of the subject of a client's certificate to the name of its principal. Raises InvalidRule.

    rules  value of ssl.principal.mapping.rules
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        self._rules = [rule for text in _split(rules) if (rule := _parse_rule(text)) != ""]

    @property
    def slow_rules(self) -> list[str]:
        """Return the rules whose time is not linear in the subject."""
        return [_text_of(rule) for rule in self._rules if not isinstance(rule, str) and not rule.is_linear]

    def name(self, distinguished_name: str) -> str:
        """Return the name of the principal. Raises NoMatchingRule."""
        for rule in self._rules:
            if isinstance(rule, str):
                return distinguished_name
            if not rule.is_linear and len(distinguished_name) > LONGEST_FOR_SLOW_RULES:
                text = (
                    f"a name of {len(distinguished_name)} characters is too long for {_text_of(rule)}, which is not RE2"
                )
                raise NoMatchingRule(text)
            if rule.pattern.fullmatch(distinguished_name) is not None:
                name = _replace(rule, distinguished_name)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        raise NoMatchingRule(f"No rules apply to {distinguished_name}, rules {self}")

    def __str__(self) -> str:
        texts = (rule if isinstance(rule, str) else _text_of(rule) for rule in self._rules)
        return f"[{', '.join(texts)}]"


def _text_of(rule: _Rule) -> str:
    return f"RULE:{rule.pattern.pattern}/{rule.replacement}{f'/{rule.case}' if rule.case else ''}"


def _split(rules: str) -> list[str]:
    return [matched[1] for matched in _SPLITTER.finditer(rules.strip())]


def _parse_rule(text: str) -> _Rule | str:
    """Return a rule, DEFAULT, or an empty text for one that is ignored."""
    matched = _PARSER.match(text)
    if matched is None:
        raise InvalidRule(f"Invalid rule: {text}")
    if matched.end() != len(text):
        raise InvalidRule(f"Invalid rule: `{text}`, unmatched substring: `{text[matched.end() :]}`")
    if matched[1] is not None:
        return DEFAULT_RULES
    if matched[2] is None:
        return ""
    try:
        return _Rule(compiled(matched[2], captures=True), matched[3], matched[4])
    except InvalidRegex:
        pass
    try:
        return _Rule(re.compile(matched[2]), matched[3], matched[4])
    except re.error as error:
        raise InvalidRule(f"Invalid rule: {text}: {error}") from None


def _replace(rule: _Rule, name: str) -> str:
    """Return a name with its matches replaced: `$1` is the first group; `$` with a number that is no group stays.

    A pattern that also matches the empty end of the name is replaced a second time there, as in Java.
    """

    def value(reference: re.Match[str], matched: Any) -> str:
        if reference[0][0] == "\\":
            if reference[1] is None:
                raise NoMatchingRule("character to be escaped is missing")
            return reference[1]
        digits = reference[2]
        if not digits:
            raise NoMatchingRule("Illegal group reference: group index is missing")
        # The longest number that is a group: $12 is group 1 and the digit 2 if there is no group 12.
        for size in range(len(digits), 0, -1):
            number = int(digits[:size])
            if number <= rule.pattern.groups:
                return (matched[number] or "") + digits[size:]
        if not rule.pattern.groups:
            raise NoMatchingRule(f"No group {digits[0]}")
        return f"${digits}"

    replaced: str = rule.pattern.sub(
        lambda matched: _REFERENCE.sub(lambda reference: value(reference, matched), rule.replacement), name
    )
    return replaced
