"""Checksums, and how their extension module is loaded."""

import subprocess
import sys

import pytest

from ottla.records import checksum
from ottla.records.checksum import crc32c


def test_checksums_are_those_of_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C (RFC 3720)
    assert crc32c(memoryview(b"6789"), crc32c(b"12345")) == 0xE3069283


def test_the_package_is_imported_when_its_layout_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_EXTENSION", "crc32c._of_another_release")
    assert checksum._extension().crc32c(b"123456789") == 0xE3069283


def test_loading_the_extension_leaves_the_package_to_be_imported_later() -> None:
    program = (
        "import sys; from ottla.records.checksum import crc32c; assert 'importlib.metadata' not in sys.modules; "
        "import crc32c as package; assert package.crc32c is crc32c; print(package.__name__)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
