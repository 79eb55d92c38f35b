"""Requests: their path to a handler and back, what they wait for, and what several handlers share."""
