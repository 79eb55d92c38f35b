"""Version of Ottla, defined only here. A release has the tag "v" + VERSION (docs/releases.md)."""

from typing import Final

VERSION: Final = "0.1.0"
