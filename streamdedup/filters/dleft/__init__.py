"""The d-left hash table of fingerprints, and the counting Bloom filter that it was published as."""
