"""A worker's server, as `--worker URL` asks it. Nothing of a worker is imported here, and no redirect is followed."""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.named_files import read_short
from streamdedup.units import escaped

ANSWER_S_MAX = 20.0  # a worker answers within 10 s, or says that it goes on
ANSWER_BYTES_MAX = 4 << 20
BODY_BYTES_MAX = 60_000  # a worker takes 64 KiB
_TEXT_MAX = 1_000  # of an error of another server


class WorkerAwayError(StreamdedupError):
    """Nobody answers at the URL."""


class Answered(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text for a person, escaped, on one line."""
        return escaped(self.body[:_TEXT_MAX].decode(errors="replace").strip())

    def object(self) -> dict[str, Any]:
        """Return the JSON object of the body. StreamdedupError if it is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise StreamdedupError(
                "what answers there is no worker of this version",
                remedy="give the URL of server.host and server.port",
            )
        return found


class WorkerServer:
    """The server at `url`, asked with the token in a file, if there is one. ConfigError if either is wrong.

    `argument` is the one that has the URL, for messages.
    """

    def __init__(
        self, url: str, token_file: Path | None = None, *, argument: str = "--worker"
    ) -> None:
        self._headers = {"Connection": "close"}
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {_token(token_file)}"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _wrong(argument) from None
        plain = not (parts.query or parts.fragment or parts.username or parts.path.strip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise _wrong(argument)
        self._host, self._port, self._is_tls = parts.hostname, port, parts.scheme == "https"
        self.name = f"{parts.scheme}://{parts.netloc}"

    def get(self, path: str) -> Answered:
        """Get a page. WorkerAwayError if nobody answers."""
        return self._asked("GET", path, None)

    def post(self, path: str, body: object) -> Answered:
        """Send a body as JSON. ConfigError if it is too long for one request; WorkerAwayError if nobody answers."""
        text = json.dumps(body).encode()
        if len(text) > BODY_BYTES_MAX:
            raise ConfigError(
                f"a worker takes at most {BODY_BYTES_MAX:,} bytes at once; ask for less, or without --worker"
            )
        return self._asked("POST", path, text)

    def _asked(self, method: str, path: str, body: bytes | None) -> Answered:
        headers = (
            self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        )
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES_MAX + 1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise WorkerAwayError(
                f"{self.name}: no worker answers ({why})",
                remedy="check that it runs, and give the URL of its server.host and server.port",
            ) from None
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES_MAX:
            raise StreamdedupError(f"{self.name}: the answer is too long to be a worker's")
        return Answered(answer.status, content)

    def _connection(self) -> http.client.HTTPConnection:
        if self._is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=ANSWER_S_MAX, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S_MAX)


def refusal_of(answered: Answered, server: WorkerServer) -> StreamdedupError:
    """Return what an answer without what was asked for means to a person. The worker says the rest itself."""
    text = f"{server.name}: {answered.text}"
    if answered.status == http.client.UNAUTHORIZED:
        return ConfigError(
            f"{server.name} does not take this token",
            remedy="give the file of its server.token_file by --token-file",
        )
    if answered.status in (
        http.client.NOT_FOUND,
        http.client.BAD_REQUEST,
        http.client.MISDIRECTED_REQUEST,
        http.client.REQUEST_ENTITY_TOO_LARGE,
    ):
        return ConfigError(text)
    return StreamdedupError(text)


def _token(path: Path) -> str:
    try:
        token = read_short(path).decode("ascii").strip()
    except OSError as error:
        raise ConfigError(
            f"--token-file: cannot be read: {error.strerror}; name a file that this user may read"
        ) from None
    except UnicodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(
            "--token-file: must have one word of visible ASCII; name the file of the worker's server.token_file"
        )
    return token


def _wrong(argument: str) -> ConfigError:
    return ConfigError(f"{argument}: must be a URL like http://127.0.0.1:9464, without a path")
