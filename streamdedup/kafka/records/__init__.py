"""The wire format of record batches: reading, writing, compression. No I/O."""
