"""numba and llvmlite, once they are needed: their import takes half a second and 60 MB.

A filter of a program does without them for as long as it gets its keys one by one, if a process before has kept what
numba made (`kernel.objects`). So no module imports them at its top: kernels and intrinsics are `Later`, and their code
names the compilers' modules by what is here. What numba made replaces nothing: a `Later` is called, and compiled into
others, as if it were that.
"""

import ctypes
from collections.abc import Callable
from functools import cached_property, update_wrapper
from importlib import import_module
from typing import Any


class Later:
    """What numba makes of `function`: made when it is first called, compiled into another, or asked for anything."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any]) -> None:
        update_wrapper(self, function)
        self._make = make

    @property
    def is_made(self) -> bool:
        """Whether it was needed yet."""
        return "made" in vars(self)

    def __call__(self, *arguments: Any) -> Any:
        """Call what was made."""
        return self.made(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of what was made, or `made` itself. Of two threads that make it, one is first."""
        if name == "made":
            return vars(self).setdefault("made", self._make())
        return getattr(self.made, name)

    def __deepcopy__(self, _known: object) -> "Later":
        return self

    @property
    def _numba_type_(self) -> Any:
        """By which numba takes it for what was made. That may be an intrinsic, which is new to numba."""
        from numba.core.registry import cpu_target

        made, context = self.made, cpu_target.typing_context
        context.refresh()
        return context.resolve_value_type(made)


def intrinsic(function: Callable[..., Any]) -> Any:
    """Return what numba compiles as the code that `function` writes."""

    def made() -> Any:
        from numba import extending

        return extending.intrinsic(function)

    return Later(function, made)


class _Module:
    """A module, imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = vars(self)[name] = getattr(import_module(self._name), name)
        return found


class _Llvm:
    """The types of LLVM's language that our code names: integers by their bits."""

    @cached_property
    def byte(self) -> Any:
        return ir.IntType(8)

    @cached_property
    def number(self) -> Any:
        return ir.IntType(32)

    @cached_property
    def word(self) -> Any:
        return ir.IntType(64)

    @cached_property
    def long(self) -> Any:
        return ir.IntType(8 * ctypes.sizeof(ctypes.c_long))

    @cached_property
    def address(self) -> Any:
        return self.byte.as_pointer()


ir: Any = _Module("llvmlite.ir")
types: Any = _Module("numba.core.types")
cgutils: Any = _Module("numba.core.cgutils")
arrayobj: Any = _Module("numba.np.arrayobj")
llvm = _Llvm()
