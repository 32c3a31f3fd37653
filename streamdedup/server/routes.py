"""The pages: /metrics, /livez, /readyz. No page holds a key, and what others chose is `escaped`."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from streamdedup.server.exposition import WorkerCollector
from streamdedup.server.findings import active, stalled
from streamdedup.server.listener import Make, Page
from streamdedup.server.pulse import Pulse
from streamdedup.server.state import ready_sentence
from streamdedup.server.status import Status
from streamdedup.units import escaped

TAKES_LONG = frozenset({"/metrics"})  # the more partitions, the longer
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def pages(status: Status, pulse: Pulse) -> Mapping[str, Make]:
    """Return, for each path, the function that makes its page."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(status, pulse))
    ProcessCollector(registry=registry)
    return {
        "/metrics": lambda: Page(
            HTTPStatus.OK, generate_latest(registry).decode(), PROMETHEUS_TEXT
        ),
        "/livez": lambda: _probe("alive", (found.text for found in stalled(pulse))),
        "/readyz": lambda: _readyz(status, pulse),
    }


def _probe(well: str, reasons: Iterable[str]) -> Page:
    if text := "".join(f"{escaped(reason)}\n" for reason in reasons):
        return Page(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return Page(HTTPStatus.OK, f"{well}\n")


def _readyz(status: Status, pulse: Pulse) -> Page:
    """Return the page: the probe, and below it what is wrong although every event is decided as it should be."""
    failures, others = active(status, pulse)
    page = _probe(ready_sentence(status), (found.text for found in failures))
    below = (f"{found.kind.severity}: {escaped(found.text)}\n" for found in others)
    return page._replace(text=page.text + "".join(below))
