"""Record batches: reading, writing, validation, compression and decompression; on bytes, without I/O."""
