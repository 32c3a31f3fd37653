"""Add the goldens that are missing: `python -m proof golden`. One that is there is never written again."""

import json
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from proof.golden import (
    DIRECTORY,
    GOLDEN,
    MANIFEST,
    Golden,
    deployment,
    false_positives,
    lists,
    records,
    removed_with_others,
)


def make(directory: Path, recipes: Sequence[Golden]) -> list[str]:
    """Make what is missing in `directory`, with its lines in the manifest; tell the names."""
    manifest = directory / MANIFEST.name
    entries = json.loads(manifest.read_text()) if manifest.exists() else {}
    made = []
    for recipe in recipes:
        if recipe.name not in entries:
            content = b"".join(bytes(piece) for piece in recipe.content(time.time()))
            with (directory / recipe.name).open("xb") as file:
                file.write(content)
            seen = recipe.filled()
            entries[recipe.name] = {
                "kind": seen.kind,
                "sha256": sha256(content).hexdigest(),
                "keys": len(seen),
                "header": seen.header(),
                "false_positives": false_positives(seen),
                "removed_with_others": removed_with_others(seen),
            }
            manifest.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")
            made.append(recipe.name)
    return made


if __name__ == "__main__":
    made = [
        *make(DIRECTORY, GOLDEN),
        *deployment.make(deployment.KINDS),
        *lists.make(lists.RECIPES),
        *records.make(records.DIRECTORY, records.RECORDS),
    ]
    sys.stdout.writelines(f"made {name}\n" for name in made)
