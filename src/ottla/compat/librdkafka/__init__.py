"""Clients with the behaviour of librdkafka, on Ottla's client."""
