"""TLS: key and trust stores, SSL contexts, cipher suites, and principals from certificates, by Kafka's settings."""
