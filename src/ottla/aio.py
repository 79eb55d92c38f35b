"""Clients for asyncio, with the same names as the blocking clients in `ottla`."""

from ottla.client.aio import Admin, Consumer, Producer, ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
