"""Random requests to Ottla and Apache Kafka side by side."""
