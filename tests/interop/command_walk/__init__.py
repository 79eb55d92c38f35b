"""Random command lines, run by Kafka's tools and by Ottla's commands on equal brokers."""
