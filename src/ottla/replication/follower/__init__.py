"""Follower of partitions: what it fetches, and what responses do to its logs."""
