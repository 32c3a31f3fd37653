"""Archives that tests unpack."""

import tarfile
from pathlib import Path
from typing import Any


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a tar archive that we made, or whose checksum we know, into `directory`."""
    # Python has filters from 3.11.4 on, and warns of a call without one from 3.12 on.
    filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as packed:
        packed.extractall(directory, **filtered)  # noqa: S202 - as the docstring says
