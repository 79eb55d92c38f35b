"""The command that adds one of Ottla's extras, which depends on how this copy of Ottla was installed.

Only an error needs the modules that the functions import, which take longer than the rest of a command's start.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple

_CHECKOUT: Final = Path(__file__).parents[2]


class Origin(NamedTuple):
    """Source that Ottla was installed from.

    source       path of a checkout, a wheel or an sdist, or a requirement by URL; "" for a package index
    is_editable  whether pip was called with --editable
    """

    source: str = ""
    is_editable: bool = False


def is_installed(package: str) -> bool:
    """Tell whether `package`, a dotted name, can be imported, without importing more than what it is in."""
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def install_command(extra: str) -> str:
    """Return the command that adds `extra` to the environment that this process runs in."""
    return f"{_installer(Path(sys.prefix))} {_requirement(extra, _origin())}"


def recorded_origin(direct_url: str) -> Origin:
    """Read the origin out of what an installer recorded as `direct_url.json` (PEP 610), "" for nothing."""
    import json
    from urllib.parse import unquote, urlsplit

    recorded = json.loads(direct_url or "{}")
    url = recorded.get("url", "")
    if "vcs_info" in recorded:
        return Origin(f"{recorded['vcs_info']['vcs']}+{url}")
    if not url.startswith("file:"):
        return Origin(url)
    path = unquote(urlsplit(url).path)
    # An image is built from a checkout that it does not have afterwards.
    return Origin(path if Path(path).exists() else ".", recorded.get("dir_info", {}).get("editable", False))


def _origin() -> Origin:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        recorded = recorded_origin(distribution("ottla").read_text("direct_url.json") or "")
    except PackageNotFoundError:
        recorded = Origin()
    if not recorded.is_editable and (_CHECKOUT / "pyproject.toml").exists():  # the sources of a checkout, by PYTHONPATH
        return Origin(str(_CHECKOUT))
    return recorded


def _requirement(extra: str, origin: Origin) -> str:
    from shlex import quote

    if "://" in origin.source:
        return quote(f"ottla[{extra}] @ {origin.source}")
    editable = "--editable " if origin.is_editable else ""
    where = " in a checkout of Ottla" if origin.source == "." else ""
    return f"{editable}{quote((origin.source or 'ottla') + f'[{extra}]')}{where}"


def _installer(prefix: Path) -> str:
    """Return the command that installs into the environment `prefix`."""
    from shlex import quote
    from shutil import which

    if (prefix / "pipx_metadata.json").exists():
        return "pipx install --force"
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool install --force"
    pip = which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{quote(sys.executable)} -m pip install"
