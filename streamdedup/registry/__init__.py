"""The Schema Registry: a client of it, what it answered kept on disk, and waiting for it. Nothing here reads values."""
