"""`/api/status`: the document about this worker, made once for all who ask within a second.

With the query `local` it is about this worker alone; without, its peers are in it, as each answered last.
"""

from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus

from streamdedup.server.kept import Kept
from streamdedup.server.peers import Peers, encoded
from streamdedup.server.pulse import Pulse
from streamdedup.server.request import JSON, Page, Request
from streamdedup.server.route import Route
from streamdedup.server.state import document
from streamdedup.server.status import Status
from streamdedup.settings import ServerOptions

PATH = "/api/status"
LOCAL = "local"


def status_routes(
    status: Status, pulse: Pulse, options: ServerOptions, clock: Callable[[], float]
) -> list[Route]:
    """Return the route of the document."""
    can_act = options.token_file is not None

    def made() -> str:
        address = f"{options.host}:{status.port}" if status.port else None
        return encoded(document(status, pulse, can_act=can_act, address=address))

    kept = Kept(made, clock)
    peers = Peers(options.places, status.instance, clock) if options.peers else None

    async def answer(request: Request) -> Page:
        text = await kept.get()
        if request.query == LOCAL:
            return page(text)
        return page(text, await peers.get() if peers else "null")

    @lru_cache(maxsize=2)  # the one with peers, and the one without: 32 workers may have 8 MB
    def page(text: str, others: str | None = None) -> Page:
        whole = text if others is None else f'{text[:-1]},"peers":{others}}}'
        return Page(HTTPStatus.OK, f"{whole}\n", JSON).for_many()

    return [Route(PATH, answer, gated=True)]
