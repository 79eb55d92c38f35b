"""Modules of other clients' names, for programs that are written against them."""

from ottla.compat.installation import install

__all__ = ["install"]
