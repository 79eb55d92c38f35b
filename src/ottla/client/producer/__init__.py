"""Producer: batching, sending, idempotence and transactions."""
