"""A Kafka broker for the tests, found by a ladder, and an independent client to look into it.

Tests take the fixtures `broker` or `private_broker` (see `plugin`), and read and write through
`topics`, which rests on confluent-kafka and so shares no code with the client under test.
"""
