"""Metrics of a broker and its clients: for display only, without effect on decisions."""
