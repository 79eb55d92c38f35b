"""Kafka protocol: decoding and encoding of messages, without sockets, asyncio or clock."""
