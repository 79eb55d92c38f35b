"""Clients for asyncio with confluent-kafka's names: the blocking ones on threads."""

from ottla.compat.confluent_kafka.aio.consumer import AIOConsumer, AsyncDeserializingConsumer
from ottla.compat.confluent_kafka.aio.producer import AIOProducer, AsyncSerializingProducer

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]
