"""Who may see the page, and who may ask and act.

Another site can lead a browser to a worker by its own name (DNS rebinding), and its scripts must not read the page. So
`Host` must be an address, `localhost`, or a name that the operator has listed. Asking and acting take a token.
"""

import hmac
import re
from collections.abc import Iterable
from http import HTTPStatus

from streamdedup.secret import is_address
from streamdedup.server.request import Refused, Request
from streamdedup.server.token import Token

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]\s]+))(?::[0-9]*)?")


class Gate:
    """Checks requests, against the names `hosts` and a token, if there is one."""

    def __init__(self, hosts: Iterable[str] = (), token: Token | None = None) -> None:
        self._hosts = frozenset({"localhost", *(host.lower() for host in hosts)})
        self._token = token

    @property
    def has_token(self) -> bool:
        """Whether anyone may ask or act."""
        return self._token is not None

    def check_host(self, request: Request) -> None:
        """Raise Refused if the request is for the name of another site, or for none."""
        name = host_of(request.headers.get("host", ""))
        if name not in self._hosts and not is_address(name):
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this worker does not answer to that host; ask by its address, or add the name to server.hosts",
            )

    def check_token(self, request: Request) -> None:
        """Raise Refused unless the request has the token in force. The time it takes says nothing about the token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = self._token.value if self._token else None
        is_right = hmac.compare_digest(given.strip().encode(), expected or b"")
        if scheme.lower() != "bearer" or not expected or not is_right:
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "this takes the token of server.token_file, as Authorization: Bearer TOKEN",
                ("WWW-Authenticate", "Bearer"),
            )


def host_of(header: str) -> str:
    """Return the name or address in a `Host` header, in lower case, without port and brackets; empty if it has none."""
    found = _HOST.fullmatch(header.lower())
    return (found[1] or found[2]).removesuffix(".") if found else ""
