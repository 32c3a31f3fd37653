"""The claims of tests/broker/test_cluster.py again, of a real broker whose records are read and written as objects."""

from tests.broker import test_cluster
from tests.broker.test_cluster import kafka_lab  # noqa: F401 - a fixture


class TestKafkaObjects(test_cluster.TestKafka):
    """The same, read and written as objects."""

    record_path = "objects"
