"""Python classes named in configs as `package.module:Name`, where Apache Kafka takes the name of a Java class."""

import importlib
from typing import Any

from ottla.metadata.configs import InvalidConfig


def is_python_class(text: str) -> bool:
    """Return whether a config names a Python class; Java's names have no colon."""
    return ":" in text


def load_class(config: str, text: str) -> Any:
    """Return the class that `config` names as `package.module:Name`. Raises InvalidConfig."""
    module, _, name = text.partition(":")
    try:
        plugin = getattr(importlib.import_module(module), name, None)
    except ImportError as cause:
        raise InvalidConfig(f"Invalid value {text} for configuration {config}: {cause}") from None
    if not isinstance(plugin, type):
        raise InvalidConfig(f"Invalid value {text} for configuration {config}: {module} has no class {name}")
    return plugin
