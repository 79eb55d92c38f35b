"""Python classes named in configs as `package.module:Name`, where Apache Kafka takes the name of a Java class."""

import importlib
from typing import Any

from ottla.metadata.configs import InvalidConfig


def is_python_class(text: str) -> bool:
    """Return whether a config names a Python class; Java's names have no colon."""
    return ":" in text


def load_class(config: str, text: str, *methods: str) -> Any:
    """Return the class that `config` names as `package.module:Name`, a value that the broker was started with: naming a class
    makes the broker run it. Raises InvalidConfig.

    methods  methods that the class must have; checked before anything of it is called
    """
    module, _, name = text.partition(":")
    try:
        plugin = getattr(importlib.import_module(module), name, None)
    except ImportError as cause:
        raise InvalidConfig(f"Invalid value {text} for configuration {config}: {cause}") from None
    if not isinstance(plugin, type):
        raise InvalidConfig(f"Invalid value {text} for configuration {config}: {module} has no class {name}")
    missing = [method for method in methods if not callable(getattr(plugin, method, None))]
    if missing:
        raise InvalidConfig(
            f"Invalid value {text} for configuration {config}: the class has no method {', '.join(missing)}"
        )
    return plugin
