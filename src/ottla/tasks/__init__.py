"""Waiting: the one future, `Deferred`, the scheduler of a broker or client, and what runs on it.

Completing something only queues: no listener runs in the stack of the code that completes. A handler, an append or a
coordinator can therefore complete waits in the middle of its work: no other code changes its state before it has returned.
"""
