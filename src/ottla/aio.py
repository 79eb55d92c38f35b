"""The clients for asyncio, under the names of the blocking ones in `ottla`."""

from ottla.client.aio import Admin, Consumer, Producer, ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
