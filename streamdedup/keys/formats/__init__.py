"""How a key is found in an event's value, one format a module."""
