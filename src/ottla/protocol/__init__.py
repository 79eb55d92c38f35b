"""Bytes to messages and back: no sockets, no asyncio, no clock."""
