"""Certificates for a broker, a registry and their clients, made by openssl."""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.broker.base import DEADLINE_S, Unavailable

HOST = "127.0.0.1"
DAYS = "2"


@dataclass(frozen=True)
class Certificates:
    """Where the PEM files of one authority lie: its own, the broker's and the worker's."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.directory / "ca.pem"

    def certificate(self, name: str) -> Path:
        """The certificate of `name`."""
        return self.directory / f"{name}.pem"

    def key(self, name: str) -> Path:
        """The private key of `name`."""
        return self.directory / f"{name}.key"


def make_certificates(directory: Path, names: Iterable[str]) -> Certificates:
    """Make an authority and a certificate for each name, valid for `HOST`; raises `Unavailable`."""
    directory.mkdir()
    made = Certificates(directory)
    new = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]
    new += ["-days", DAYS, "-addext"]
    signing = ["keyUsage=critical,keyCertSign", "-subj", "/CN=authority"]
    openssl(*new, *signing, "-out", made.authority, "-keyout", made.key("ca"))
    for name in names:
        own = ["basicConstraints=critical,CA:FALSE", "-subj", f"/CN={name}"]
        signed = ["-CA", made.authority, "-CAkey", made.key("ca")]
        files = ["-out", made.certificate(name), "-keyout", made.key(name)]
        openssl(*new, *own, "-addext", f"subjectAltName=IP:{HOST}", *signed, *files)
    return made


def openssl(*arguments: object) -> None:
    """Run openssl; raises `Unavailable`."""
    command = shutil.which("openssl")
    if not command:
        raise Unavailable("certificates: no openssl on PATH")
    run = subprocess.run(
        [command, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if run.returncode:
        raise Unavailable(f"certificates: openssl failed: {run.stderr.strip()}")
