"""Ottla: Kafka you can pip install."""

__version__ = "0.1.0"
__all__ = ["__version__"]
