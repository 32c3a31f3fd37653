"""Everything that talks to Kafka. Only this package imports aiokafka, and no aiokafka type leaves it."""
