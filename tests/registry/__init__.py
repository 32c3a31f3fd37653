"""The Schema Registry: its client, the cache on disk, workers that wait for it, and a real one."""
