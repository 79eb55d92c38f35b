"""Files of users with hashed passwords: one `name:scrypt$N$r$p$salt$hash` a line, salt and hash in base64."""

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import Final

_N: Final = 1 << 14
_R: Final = 8
_P: Final = 1
_MEMORY: Final = 64 << 20
_MOST_N: Final = 1 << 17


class InvalidPasswordFile(ValueError):
    """A password file that cannot be used: one line with cause and remedy."""


def hash_password(password: str, salt: bytes) -> str:
    """Return the hash of a password as it stands in a file."""
    digest = hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P, maxmem=_MEMORY)
    return f"scrypt${_N}${_R}${_P}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


class PasswordFile:
    """Users and hashes of a file, read once."""

    def __init__(self, path: Path) -> None:
        """Read a file. Raises InvalidPasswordFile."""
        self._hashes: dict[str, tuple[int, int, int, bytes, bytes]] = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidPasswordFile(
                f"cannot read {path}: {getattr(error, 'strerror', None) or error};"
                " ottla console --hash-password prints a line of it"
            ) from None
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, colon, text = line.strip().partition(":")
            try:
                self._hashes[user] = _parse_hash(text)
            except (ValueError, binascii.Error):
                colon = ""
            if not colon or not user:
                raise InvalidPasswordFile(
                    f"{path}, line {number}: a line is NAME:HASH, as ottla console --hash-password prints it"
                )
        if not self._hashes:
            raise InvalidPasswordFile(f"{path} has no users; ottla console --hash-password prints a line of it")

    def accepts(self, user: str, password: str) -> bool:
        """Return whether a password is that of the user; takes the same time for an unknown user."""
        known = self._hashes.get(user)
        n, r, p, salt, expected = known or (_N, _R, _P, b"unknown user", b"")
        digest = hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MEMORY * 4)
        return hmac.compare_digest(digest, expected) and known is not None


def _parse_hash(text: str) -> tuple[int, int, int, bytes, bytes]:
    kind, n, r, p, salt, digest = text.split("$")
    if kind != "scrypt" or not 2 <= int(n) <= _MOST_N or not 1 <= int(r) <= 16 or not 1 <= int(p) <= 4:
        raise ValueError(text)
    return int(n), int(r), int(p), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
