"""The Python client: connections, cluster metadata, reading and writing of record batches."""
