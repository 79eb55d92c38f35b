"""Modules that the clients of a schema registry share, by confluent-kafka's names."""
