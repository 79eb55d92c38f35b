"""Connections of clients: accepted within limits, read in turns, answered in order."""
