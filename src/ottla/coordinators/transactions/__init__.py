"""Transactions (KIP-98, KIP-890): who writes under which epoch, into which partitions, and how it ends."""
