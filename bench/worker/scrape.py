"""What the worker tells of itself over HTTP while it is measured."""

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from bench.worker.measuring import Contending


def metrics(worker: Contending) -> str:
    """The text of /metrics; OSError where it does not answer."""
    port = worker.lines("server_listens")[0]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def samples(text: str, name: str) -> list[tuple[Mapping[str, str], int]]:
    """The labels and the count of each sample of this name; SystemExit where there is none."""
    found: list[tuple[Mapping[str, str], int]] = [
        (sample.labels, int(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]
    if not found:
        raise SystemExit(f"the worker does not tell {name}")
    return found
