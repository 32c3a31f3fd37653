"""Keeps numba from reading `.numba_config.yaml` of the working directory: whoever may write there would set it up.

numba looks for that file as it is imported, and again whenever it compiles. Only our commands do without it: in a
program that imports this package, how numba is set up is the program's choice.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

FILE = ".numba_config.yaml"
_MODULE = "numba.core.config"


class _Loader(SourceFileLoader):
    """Loads numba's module with the name of no regular file in the place of `FILE`."""

    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        if code is None:
            return None
        constants = (os.devnull if each == FILE else each for each in code.co_consts)
        return code.replace(co_consts=tuple(constants))


class _Finder:
    """Finds that module alone, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(name, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(found.loader.name, found.loader.path)
        return found


def ignore_file() -> None:
    """Have numba ignore the file, unless it is imported already."""
    if "numba" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
