"""From an event to its key, and from a key to its digest."""
