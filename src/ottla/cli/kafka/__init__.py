"""Commands that Apache Kafka has as scripts, with their flags and their output."""
