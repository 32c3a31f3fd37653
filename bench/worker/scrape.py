"""What the worker tells of itself over HTTP while it is measured."""

import urllib.request

from bench.worker.measuring import Contending


def metrics(worker: Contending) -> str:
    """The text of /metrics; OSError where it does not answer."""
    port = worker.lines("server_listens")[0]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text
