"""Streams groups (KIP-1071), spoken for over a socket."""
