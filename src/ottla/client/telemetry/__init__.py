"""Metrics that clients push to brokers (KIP-714)."""
