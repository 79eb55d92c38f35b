"""Programs of confluent-kafka on ottla.compat: whatever they show must be equal with both."""
