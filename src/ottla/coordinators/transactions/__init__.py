"""Transactions (KIP-98, KIP-890): producer epochs, partitions of a transaction, and its end."""
