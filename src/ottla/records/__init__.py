"""Record batches: reading, writing, validation, compression and decompression. Bytes in, bytes out; no I/O."""
