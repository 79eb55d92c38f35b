"""JAAS: login modules with their options, from a config value (KIP-85) or from a file with contexts.

    sasl.jaas.config    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

    a file              KafkaServer {
                          org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";
                        };

Both are read by the rules of java.io.StreamTokenizer, as the JDK and Kafka do:

- A word begins with a letter, `_`, `$` (in files also `*`) or any character from U+00A0, and goes on with these, digits,
  `.` and `-`. Digits, `.` or `-` at its beginning make a number, and numbers are refused as values.
- A value in " or ' (in files only ") knows the escapes of C; it ends at the end of its line even without its quote.
- `/` begins a comment that ends with its line, `/*` one that ends with `*/`.

Errors have the texts of Kafka 4.4 (values) and of the JDK (files). System properties in files (`${name}`) are not
replaced.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

CLIENT_CONTEXT: Final = "KafkaClient"
SERVER_CONTEXT: Final = "KafkaServer"
FORBIDDEN_MODULES: Final = (
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
)
"""Modules that are refused as long as there is no list of allowed ones: they fetch objects from addresses in options."""

_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_END: Final = "end"
_WORD: Final = "word"
_NUMBER: Final = "number"
_NEWLINE: Final = "newline"
_ESCAPES: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}


class JaasError(ValueError):
    """A JAAS value or file with a syntax error, or without the context that is needed."""


class LoginModule(NamedTuple):
    """A login module of a JAAS config: class name, control flag in upper case, options."""

    name: str
    flag: str
    options: dict[str, str]


class _Token(NamedTuple):
    """A token: its kind (a quote and all other characters are kinds of their own), and the text of words and quotes."""

    kind: str
    text: str | None = None


class _Tokenizer:
    """Tokens of a text by the rules of java.io.StreamTokenizer.

    letters   characters that words may have besides letters and digits
    newlines  return the ends of lines as tokens
    """

    __slots__ = ("_letters", "_newlines", "_position", "_text")

    def __init__(self, text: str, letters: str, *, newlines: bool = False) -> None:
        self._text = text
        self._letters = letters
        self._newlines = newlines
        self._position = 0

    def next(self) -> _Token:
        """Return the next token; at the end one of the kind _END."""
        while self._position < len(self._text):
            char = self._text[self._position]
            if self._newlines and char in "\r\n":
                self._position += 2 if self._text.startswith("\r\n", self._position) else 1
                return _Token(_NEWLINE)
            if char <= " ":
                self._position += 1
            elif char == "/":
                if not self._skip_comment():
                    return _Token(_END)
            else:
                return self._token(char)
        return _Token(_END)

    def _token(self, char: str) -> _Token:
        # Digits come first: `-` and `.` are of both kinds.
        if char in "0123456789.-":
            return self._number(char)
        if self._is_letter(char):
            begun = self._position
            while self._position < len(self._text) and self._continues_word(self._text[self._position]):
                self._position += 1
            return _Token(_WORD, self._text[begun : self._position])
        self._position += 1
        return _Token(char, self._read_quoted(char)) if char in "\"'" else _Token(char)

    def _is_letter(self, char: str) -> bool:
        return "a" <= char <= "z" or "A" <= char <= "Z" or char >= "\xa0" or char in self._letters

    def _continues_word(self, char: str) -> bool:
        return self._is_letter(char) or char in "0123456789.-"

    def _number(self, char: str) -> _Token:
        text = self._text
        if char == "-":
            self._position += 1
            following = text[self._position : self._position + 1]
            if following not in tuple("0123456789."):
                return _Token("-")
        dots = 0
        while self._position < len(text) and text[self._position] in "0123456789.":
            dots += text[self._position] == "."
            if dots > 1:
                break
            self._position += 1
        return _Token(_NUMBER)

    def _skip_comment(self) -> bool:
        """Skip a comment; returns False if the text ends within one that needs an end."""
        text = self._text
        if text.startswith("/*", self._position):
            end = text.find("*/", self._position + 2)
            self._position = len(text) if end < 0 else end + 2
            return end >= 0
        # The character behind a single slash belongs to the comment even if it is a newline.
        self._position += 2
        while self._position < len(text) and text[self._position] not in "\r\n":
            self._position += 1
        return True

    def _read_quoted(self, quote: str) -> str:
        text, value = self._text, []
        while self._position < len(text):
            char = text[self._position]
            if char in "\r\n":
                break
            self._position += 1
            if char == quote:
                break
            value.append(self._read_escape() if char == "\\" else char)
        return "".join(value)

    def _read_escape(self) -> str:
        """Return the character after a backslash: at most three octal digits, a letter of C, or any as it is."""
        text, begun = self._text, self._position
        if begun == len(text):
            return "\uffff"
        first = text[begun]
        self._position += 1
        if first not in "01234567":
            return _ESCAPES.get(first, first)
        most = 3 if first <= "3" else 2
        while self._position < min(len(text), begun + most) and text[self._position] in "01234567":
            self._position += 1
        return chr(int(text[begun : self._position], 8))


def parse_modules(text: str) -> list[LoginModule]:
    """Return the login modules of a config value. Raises JaasError."""
    tokens = _Tokenizer(text, "_$")
    modules = []
    while (token := tokens.next()).kind != _END:
        modules.append(_module(token.text, tokens))
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    return modules


def _module(name: str | None, tokens: _Tokenizer) -> LoginModule:
    token = tokens.next()
    if token.kind == _END:
        raise JaasError("Login module control flag not specified in JAAS config")
    if token.text is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    flag = token.text.upper()
    if flag not in _FLAGS:
        raise JaasError(f"Invalid login module control flag '{token.text}' in JAAS config")
    options: dict[str, str] = {}
    while (token := tokens.next()).kind not in (_END, ";"):
        key = "null" if token.text is None else token.text
        if tokens.next().kind != "=" or (value := tokens.next().text) is None:
            raise JaasError(f"Value not specified for key '{key}' in JAAS config")
        options[key] = value
    if token.kind != ";":
        raise JaasError("JAAS config entry not terminated by semi-colon")
    if not name:
        raise JaasError("Login module not specified in JAAS config")
    return LoginModule(name, flag, options)


def parse_module(text: str, allowed: Iterable[str] | None = None) -> LoginModule:
    """Return the only login module of a config value. Raises JaasError.

    allowed  class names that may be used; None allows all but FORBIDDEN_MODULES
    """
    modules = parse_modules(text)
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    check_allowed(modules, allowed)
    return modules[0]


def check_allowed(modules: Iterable[LoginModule], allowed: Iterable[str] | None = None) -> None:
    """Raise JaasError if a module may not be used (`org.apache.kafka.allowed.login.modules` in Kafka)."""
    names = None if allowed is None else tuple(name.strip() for name in allowed)
    for module in modules:
        name = module.name.strip()
        if name in FORBIDDEN_MODULES if names is None else name not in names:
            raise JaasError(
                f"{name} is not allowed. Update System property 'org.apache.kafka.allowed.login.modules' to allow {name}"
            )


def parse_file(text: str) -> dict[str, list[LoginModule]]:
    """Return the login modules of a JAAS file by context. Raises JaasError."""
    return _FileParser(text).contexts()


def server_modules(
    contexts: Mapping[str, list[LoginModule]], listener: str, path: str | None = None
) -> list[LoginModule]:
    """Return the login modules of a listener: those of its own context, or else of KafkaServer. Raises JaasError.

    path  path of the file, for the error message
    """
    own = f"{listener.lower()}.{SERVER_CONTEXT}"
    for name in (own, SERVER_CONTEXT):
        if name in contexts:
            return contexts[name]
    raise _missing(f"'{SERVER_CONTEXT}' or '{own}'", path)


def client_modules(contexts: Mapping[str, list[LoginModule]], path: str | None = None) -> list[LoginModule]:
    """Return the login modules of the context KafkaClient. Raises JaasError."""
    if CLIENT_CONTEXT not in contexts:
        raise _missing(f"'{CLIENT_CONTEXT}'", path)
    return contexts[CLIENT_CONTEXT]


def _missing(names: str, path: str | None) -> JaasError:
    return JaasError(
        f"Could not find a {names} entry in the JAAS configuration. System property "
        f"'java.security.auth.login.config' is {'not set' if path is None else path}"
    )


class _FileParser:
    """Parser of a JAAS file, with the errors of the JDK's."""

    __slots__ = ("_line", "_next", "_tokens")

    def __init__(self, text: str) -> None:
        self._tokens = _Tokenizer(text, "_$*", newlines=True)
        self._line = 1
        self._next = self._read()

    def _read(self) -> _Token:
        while (token := self._tokens.next()).kind == _NEWLINE:
            self._line += 1
        return token

    def contexts(self) -> dict[str, list[LoginModule]]:
        contexts: dict[str, list[LoginModule]] = {}
        while self._next.kind != _END:
            name = "null" if self._next.text is None else self._next.text
            self._next = self._read()
            self._sign("{")
            modules = []
            while self._next.kind != "}":
                modules.append(self._module())
            self._sign("}")
            self._sign(";")
            if name in contexts:
                raise JaasError(f"Configuration Error:\n\tCan not specify multiple entries for {name}")
            contexts[name] = modules
        return contexts

    def _module(self) -> LoginModule:
        name = self._word("module class name")
        flag = self._word("controlFlag").upper()
        if flag not in _FLAGS:
            raise JaasError(f"Configuration Error:\n\tInvalid control flag, {flag}")
        options: dict[str, str] = {}
        while self._next.kind != ";":
            key = self._word("option key")
            self._sign("=")
            options[key] = self._word("option value")
        self._next = self._read()
        return LoginModule(name, flag, options)

    def _word(self, expected: str) -> str:
        if self._next.kind not in (_WORD, '"') or self._next.text is None:
            raise self._error_expecting(expected)
        text = self._next.text
        self._next = self._read()
        return text

    def _sign(self, sign: str) -> None:
        if self._next.kind != sign:
            raise self._error_expecting(sign)
        self._next = self._read()

    def _error_expecting(self, expected: str) -> JaasError:
        if self._next.kind == _END:
            return JaasError(f"Configuration Error:\n\texpected [{expected}], read [end of file]")
        text = "null" if self._next.text is None else self._next.text
        suffix = "" if self._next.kind in "{}=;" else f", found [{text}]"
        return JaasError(f"Configuration Error:\n\tLine {self._line}: expected [{expected}]{suffix}")
