"""What a worker tells over HTTP: /metrics for Prometheus, /livez and /readyz for whoever starts and stops it.

It answers from threads of its own, so that it can tell of a loop that stands still, and only reads: see `Watched`.
"""

from streamdedup.server.listener import Listener
from streamdedup.server.pages import pages
from streamdedup.server.pulse import Pulse
from streamdedup.server.watched import Phase, Watched

__all__ = ["Listener", "Phase", "Pulse", "Watched", "pages"]
