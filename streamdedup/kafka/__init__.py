"""Everything that talks to Kafka. Apart from `testing`, which raises its errors, only this package imports aiokafka."""
