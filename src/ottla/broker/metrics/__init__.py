"""Metrics of a broker under Kafka's names, counted while requests are served or computed when they are read; and those of
clients, which they push.
"""
