"""The cuckoo filter: fingerprints in two candidate buckets for each key."""
