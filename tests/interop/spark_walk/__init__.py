"""Random queries for Spark's own Kafka connector and Ottla's format, side by side; see `walk`."""
