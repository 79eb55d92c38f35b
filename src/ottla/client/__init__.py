"""The Python client: connections, cluster metadata, reading and writing of record batches."""

import sys

if sys.platform == "win32":
    raise ImportError(
        "Ottla's client needs Linux or macOS (an event loop that watches sockets): on Windows run it in WSL"
    )
