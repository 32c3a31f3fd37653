"""Patches that reach a function by the object it is, whatever its name and its module.

An attribute of a class, or a constant of a module, is patched by `unittest.mock.patch.object`.
"""

import builtins
import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

PRODUCT = "streamdedup"


@contextmanager
def replaced(function: Callable[..., Any], replacement: object) -> Iterator[None]:
    """Put `replacement` in the place of `function`, a method or a module's, a kernel's dispatcher included.

    A module's function is replaced in all modules of the product that hold it, under whatever name they imported it.
    The replacement may call `function`, which stays as it is. LookupError if nothing of the product holds it.
    """
    holders = list(_holders(function))
    if not holders:
        raise LookupError(f"nothing in {PRODUCT} holds {function!r}")
    with ExitStack() as stack:
        for holder, name in holders:
            stack.enter_context(patch.object(holder, name, replacement))
        yield


@contextmanager
def recompiled(kernel: Any, replacement: Any) -> Iterator[None]:
    """Compile `kernel` from the code of `replacement`, for the kernels that call it, too.

    That takes `fresh_kernels`. The code will run among the globals of the kernel: LookupError if one that it uses is
    another there than in the module of `replacement`.
    """
    function: FunctionType = kernel.py_func
    for name in _globals_of(replacement.__code__):
        if _named(function, name) is not _named(replacement, name):
            raise LookupError(f"{name} of {replacement.__name__} is another in {kernel.__module__}")
    code = function.__code__
    function.__code__ = replacement.__code__
    try:
        yield
    finally:
        function.__code__ = code


def product_modules() -> list[ModuleType]:
    """The modules of the product that were imported."""
    loaded = list(sys.modules.items())
    return [module for name, module in loaded if name.partition(".")[0] == PRODUCT]


def _holders(function: Callable[..., Any]) -> Iterator[tuple[object, str]]:
    *outer, name = function.__qualname__.split(".")
    if outer:
        owner = reduce(getattr, outer, sys.modules[function.__module__])
        if vars(owner).get(name) is function:
            yield owner, name
        return
    for module in product_modules():
        for name, held in list(vars(module).items()):
            if held is function:
                yield module, name


def _globals_of(code: CodeType) -> set[str]:
    return {str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}


def _named(function: FunctionType, name: str) -> object:
    return function.__globals__.get(name, vars(builtins).get(name))
