"""One partition on one disk, in Kafka's own files."""
