"""Metrics of a broker under load, compared with those of Apache Kafka."""
