"""Admin client of librdkafka on Ottla's: values, and requests with futures."""
