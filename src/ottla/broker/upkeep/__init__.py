"""Upkeep of the logs: checkpoints, flushes, retention, moves between directories, removals."""
