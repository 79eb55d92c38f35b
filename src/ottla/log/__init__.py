"""Log of a partition on disk, in Kafka's file formats."""
