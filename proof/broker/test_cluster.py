"""The claims of tests/broker/test_cluster.py again, of a real broker whose records are read and written as objects."""

from tests.broker import test_cluster


class TestKafkaObjects(test_cluster.TestKafka):
    """The same, read and written as objects."""

    record_path = "objects"
