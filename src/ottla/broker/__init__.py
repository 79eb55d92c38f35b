"""The broker: the only place where sockets, disks, clocks and tasks meet."""

import sys

if sys.platform == "win32":
    raise ImportError("Ottla's broker needs Linux or macOS (fcntl, sendfile): on Windows run it in WSL")
