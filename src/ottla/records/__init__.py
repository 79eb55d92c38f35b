"""What is inside a batch of records: reading, writing, validating, packing and unpacking. Bytes in, bytes out; no I/O."""
