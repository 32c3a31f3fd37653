"""Schemas on disk, so that a restart needs no registry: one file for each id, in a folder for each registry.

An id should never get another schema: `Registry` compares what was written last with the registry's. A file that cannot
be read, is damaged, or could be another user's, counts as missing, and one that cannot be written is left out: the
registry is asked.
"""

import hashlib
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.named_files import make_directory, open_regular, others_may_write

FOLDER = "%schemas"  # no group's folder has this name: a percent sign is encoded there
FILES_MAX = 2_000
FILE_BYTES_MAX = 16 << 20
_DIGITS = 64  # of the checksum, before the text


class Cache:
    """The schemas of the registry at `address`, which includes the context, below `directory`; none without one.

    A command, which writes nothing, only reads them (`reads_only`).
    """

    def __init__(self, directory: Path | None, address: str, *, reads_only: bool = False) -> None:
        name = hashlib.sha256(address.encode()).hexdigest()[:32]
        self._folder = None if directory is None else directory / FOLDER / name
        self._reads_only = reads_only

    @property
    def place(self) -> str:
        """The folder of this registry, for an operator."""
        return f"{self._folder or FOLDER}"

    def read(self, number: int | str) -> Schema | None:
        """Return the schema of an id, if it is there."""
        if self._folder is None:
            return None
        try:
            path = self._folder.resolve() / f"{number}"
            if others_may_write(path, but_our_groups=True, up_to=self._folder.parent.resolve()):
                return None
            with os.fdopen(open_regular(path, os.O_NOFOLLOW), "rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
            checksum, text = content[:_DIGITS], content[_DIGITS:]
            if hashlib.sha256(text).hexdigest().encode() != checksum:
                return None
            raw = json.loads(text)
            references = (Reference(*each) for each in raw["references"])
            return Schema(raw["type"], raw["schema"], tuple(references))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def newest(self, count: int) -> list[int]:
        """Return the ids that were written last, at most so many, the newest first."""
        if self._folder is None:
            return []
        try:
            files = [each for each in self._folder.iterdir() if each.name.isdecimal()]
            dated = sorted(((each.stat().st_mtime, int(each.name)) for each in files), reverse=True)
        except OSError:
            return []
        return [number for _, number in dated[:count]]

    def write(self, number: int | str, schema: Schema) -> None:
        """Keep the schema of an id; of too many, delete those that were written first."""
        if self._folder is None or self._reads_only or schema.why_not:
            return
        references = [(each.name, each.text) for each in schema.references]
        raw = {"type": schema.type, "schema": schema.text, "references": references}
        text = json.dumps(raw).encode()
        with suppress(OSError):
            make_directory(self._folder)
            self._make_room(self._folder)
            made = self._folder / f".{secrets.token_hex(8)}"
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(hashlib.sha256(text).hexdigest().encode() + text)
                made.rename(self._folder / f"{number}")
            except OSError:
                made.unlink()
                raise

    def _make_room(self, folder: Path) -> None:
        files = sorted((each.stat().st_mtime, each) for each in folder.iterdir())
        for _, oldest in files[: len(files) - FILES_MAX + 1]:
            oldest.unlink(missing_ok=True)
