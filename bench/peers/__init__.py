"""Kafka Streams, beside which `python -m bench full` measures the worker."""
