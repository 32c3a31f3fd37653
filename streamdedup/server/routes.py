"""The routes of a worker, and the pages /metrics, /livez and /readyz.

No page holds a key, but in the answer to who has typed it. What others chose is `escaped`.
"""

# How to add a route: a function that returns `Route`s, in a module of its own, and its line in `all_routes`. What it
# needs of the worker is in `Served`.

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from streamdedup.server.exposition import WorkerCollector
from streamdedup.server.files import files
from streamdedup.server.findings import active, stalled
from streamdedup.server.pulse import Pulse
from streamdedup.server.request import Page
from streamdedup.server.route import Make, Route, at_once, kept
from streamdedup.server.runbook import runbook
from streamdedup.server.state import ready_sentence
from streamdedup.server.status import Status
from streamdedup.server.status_routes import status_routes
from streamdedup.settings import ServerOptions
from streamdedup.units import escaped

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Served:
    """What the pages show, and the routes for those who have the token."""

    status: Status
    pulse: Pulse
    token_routes: Sequence[Route] = ()
    options: ServerOptions = field(default_factory=ServerOptions)


def all_routes(served: Served, clock: Callable[[], float] = monotonic) -> list[Route]:
    """Return all routes of a worker."""
    return [
        kept(
            "/metrics", _metrics(served.status, served.pulse), clock
        ),  # the more partitions, the longer
        *probes(served),
        *served.token_routes,
        *status_routes(served.status, served.pulse, served.options, clock),
        *files(),
        runbook(),
    ]


def probes(served: Served) -> list[Route]:
    """Return the routes that `server.probe_port` has."""
    return [at_once(path, make) for path, make in _probes(served.status, served.pulse).items()]


def pages(status: Status, pulse: Pulse) -> Mapping[str, Make]:
    """Return, for the paths of metrics and probes, the functions that make their pages."""
    return {"/metrics": _metrics(status, pulse), **_probes(status, pulse)}


def _metrics(status: Status, pulse: Pulse) -> Make:
    registry = CollectorRegistry()
    registry.register(WorkerCollector(status, pulse))
    ProcessCollector(registry=registry)
    return lambda: Page(HTTPStatus.OK, generate_latest(registry).decode(), PROMETHEUS_TEXT)


def _probes(status: Status, pulse: Pulse) -> Mapping[str, Make]:
    return {
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
