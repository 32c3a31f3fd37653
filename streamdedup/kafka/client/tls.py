"""The TLS context of all clients: made in a thread, once for each state of the files that it is made of.

Certificates are rotated while a worker runs. So each new connection, of an old client as of a new one, takes the newest
files that fit together. To read them takes 20 to 30 ms, which would hold up the loop.
"""

import asyncio
import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from aiokafka.helpers import create_ssl_context
from pydantic import SecretStr
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.named_files import open_regular

log = structlog.get_logger(__name__)


async def ssl_context(options: KafkaOptions) -> ssl.SSLContext:
    """Return the context for these options; all clients with the same options share one.

    It follows the files: each connection takes them as they were found last. This call looks at them, and so does each
    connection, for those after it. Files that do not fit together leave what was before in force, and are logged.
    ConfigError if nothing was before.
    """
    following = _following(TlsFiles.of(options))
    await asyncio.get_running_loop().run_in_executor(following.thread, following.look)
    return following


_OTHER_NAME = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def tls_remedy(
    error: ssl.SSLError, peer: str, where: str, *, name: tuple[str, str], protocol: tuple[str, str]
) -> str | None:
    """Return what an operator must correct after a handshake with `peer` failed; None if it only went away.

    `where` is our section of options. `name` is the option and the remedy if the peer's certificate is for another host
    name, `protocol` those if it speaks no TLS, or another version.
    """
    match error:
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ssl.SSLSyscallError():
            return None
        case ssl.SSLCertVerificationError(verify_code=code) if code in _OTHER_NAME:
            option, remedy = name
            return f"{where}.{option}: the certificate of {peer} is for another host name; {remedy}"
        case ssl.SSLCertVerificationError():
            return (
                f"{where}.ssl_cafile: the certificate of {peer} is not trusted ({error.verify_message}); name a file"
                " with the certificate of the authority that signed it"
            )
        case _ if "ALERT" in (error.reason or ""):
            return (
                f"{where}.ssl_certfile: {peer} requires a client certificate, or refuses ours ({error.reason}); set"
                " ssl_certfile and ssl_keyfile to those of an authority that it trusts"
            )
    option, remedy = protocol
    return f"{where}.{option}: {peer} and we do not agree on TLS ({error.reason}); {remedy}"


class TlsFiles(NamedTuple):
    """The PEM files of which a context is made; without authorities of our own, those of the system are trusted."""

    cafile: Path | None
    certfile: Path | None
    keyfile: Path | None
    password: SecretStr | None = None
    check_hostname: bool = True

    @classmethod
    def of(cls, options: KafkaOptions) -> "TlsFiles":
        """Return those by which brokers are reached."""
        paths = options.ssl_cafile, options.ssl_certfile, options.ssl_keyfile
        return cls(*paths, options.ssl_password, options.ssl_check_hostname)

    def context(self) -> ssl.SSLContext:
        """Return a context with what the files hold now. OSError, which ssl.SSLError is, if they cannot be loaded."""
        # If there is no password, OpenSSL would prompt on the terminal and wait.
        password = self.password.get_secret_value() if self.password else ""
        with ExitStack() as opened:
            cafile, certfile, keyfile = (
                None if path is None else _name_of(path, opened)
                for path in (self.cafile, self.certfile, self.keyfile)
            )
            made: ssl.SSLContext = create_ssl_context(
                cafile=cafile, certfile=certfile, keyfile=keyfile, password=password
            )
        made.check_hostname = self.check_hostname
        return made

    def state(self) -> tuple[tuple[int, ...] | None, ...]:
        """Return a value that changes if a file changes, or another one takes its place, also behind a link."""
        return tuple(_stamp(path) for path in self[:3] if isinstance(path, Path))


def _name_of(path: Path, opened: ExitStack) -> str:
    """Open the file, which OpenSSL would do in its own way, and return a name for OpenSSL to read it by."""
    fd = open_regular(path)
    opened.callback(os.close, fd)
    return f"/dev/fd/{fd}"


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class _Following(ssl.SSLContext):
    """Hands each connection to the context of the newest files. All but `wrap_bio` runs in its `thread`."""

    thread: ThreadPoolExecutor
    _files: TlsFiles
    _now: ssl.SSLContext | None
    _state: object
    _refused: object

    @classmethod
    def of(cls, files: TlsFiles) -> "_Following":
        """Return one that has not looked at the files yet."""
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made.thread = ThreadPoolExecutor(1, "streamdedup-tls")
        made._files, made._now = files, None
        made._state = made._refused = object()
        return made

    def look(self) -> None:
        """Make another context if a file has changed. This blocks. ConfigError if none was ever made."""
        state = self._files.state()
        if self._now is not None and state == self._state:
            return
        try:
            made = self._files.context()
        except OSError as error:
            if self._now is None:
                raise ConfigError(
                    f"kafka.ssl_cafile, ssl_certfile, ssl_keyfile: the files cannot be loaded ({error});"
                    " give PEM files that fit together, and kafka.ssl_password_file for an encrypted key"
                ) from None
            if state != self._refused:
                log.error(
                    "tls_files_refused",
                    reason="kafka.ssl_cafile, ssl_certfile, ssl_keyfile: the files have changed, and cannot be loaded"
                    f" ({error})",
                    remedy="give PEM files that fit together; until then, what they held before is in force",
                )
            self._refused = state
            return
        if self._now is not None:
            log.info("tls_files_loaded", note="new connections are made by them")
        self._now, self._state = made, state

    @override
    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        # asyncio calls this for each connection, on the loop. What the look finds is for the connection after it: one
        # that fails by an old certificate is tried again.
        self.thread.submit(self.look)
        assert self._now is not None  # noqa: S101 - nobody has this object before a look
        return self._now.wrap_bio(*args, **named)


@lru_cache(maxsize=16)
def _following(files: TlsFiles) -> _Following:
    return _Following.of(files)
