"""The version of this Ottla: the one place where it stands. A release is the tag "v" + VERSION (docs/releases.md)."""

from typing import Final

VERSION: Final = "0.1.0"
