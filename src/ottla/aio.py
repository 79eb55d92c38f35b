"""The clients for asyncio, under the names of the blocking ones in `ottla`."""

from ottla.client.aio import Admin, ShareConsumer

__all__ = ["Admin", "ShareConsumer"]
