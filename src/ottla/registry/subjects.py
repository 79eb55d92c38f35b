"""Names of subjects: a subject is `SUBJECT` in the default context, or `:.CONTEXT:SUBJECT` in another one.

`:.CONTEXT:` without a subject is the context itself, which may have a config and a mode. `:.__GLOBAL:` has those above all
contexts. A name may contain colons, a context cannot.
"""

from typing import Final

from ottla.registry.refusals import invalid_subject

DEFAULT: Final = "."
"""Name of the default context."""
GLOBAL: Final = ":.__GLOBAL:"
ALL_CONTEXTS: Final = ":*:"
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


def split(subject: str) -> tuple[str, str]:
    """Return the context of a subject, and its name there."""
    if subject.startswith(":."):
        context, colon, name = subject[1:].partition(":")
        if colon:
            return context, name
    return DEFAULT, subject


def context_of(subject: str) -> str:
    """Return the context of a subject."""
    return split(subject)[0]


def qualified(context: str, subject: str) -> str:
    """Return the full name of a subject that is named in a context; it may name a context of its own."""
    if context == DEFAULT or subject.startswith(":."):
        return normal(subject)
    return f":{context}:{subject}"


def normal(subject: str) -> str:
    """Return the one name of a subject: `:.:x` is `x`."""
    context, name = split(subject)
    return name if context == DEFAULT else f":{context}:{name}"


def is_whole_context(subject: str) -> bool:
    """Return whether a name is that of a context, not of a subject in it."""
    return subject.startswith(":.") and not split(subject)[1]


def check(subject: str, *, is_setting: bool = False) -> str:
    """Return the one name of a subject. Raises Refusal 42208.

    is_setting  whether the subject is to have a config or mode, which also contexts have
    """
    name = normal(subject)
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in name) or split(name)[1] in _RESERVED:
        raise invalid_subject(subject)
    if not is_setting and (name.startswith(GLOBAL) or is_whole_context(name) or not name):
        raise invalid_subject(subject)
    return name


def scopes(subject: str) -> tuple[str, ...]:
    """Return where a setting of a subject is looked up, "" for the global one: subject, context, everything."""
    context, name = split(subject)
    around = "" if context == DEFAULT else f":{context}:"
    return (subject, around, GLOBAL) if name else (around, GLOBAL)
