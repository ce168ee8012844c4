"""THE MACHINE: numba with our settings, glibc's malloc, and a subprocess for code that may crash the interpreter."""

import ctypes
import inspect
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, update_wrapper
from types import CodeType
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable)

# Numbers of the options in malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


def compiled(function: Function) -> Function:
    """Compile on first call. numba takes as long to import as all else together, and `saccade --help` compiles nothing."""
    return cast(Function, _Compiled(inspect.unwrap(function)))  # the tests' shape checks wrap every function; numba needs the one inside


class _Compiled:
    """numba's function, which is made on the first use; then it takes this one's place in its module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._dispatcher, name)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # for another process: by name

    @cached_property
    def _dispatcher(self) -> Any:
        import numba

        scope, callees = self._function.__globals__, []
        for name in _names(self._function.__code__):
            if isinstance(scope.get(name), _Compiled) and scope[name] is not self:
                scope[name] = scope[name]._dispatcher  # numba knows no other
            if isinstance(scope.get(name), numba.core.dispatcher.Dispatcher):
                callees.append(scope[name])
        dispatcher = numba.njit(cache=True, nogil=True, boundscheck=False)(self._function)
        _follow_callees(dispatcher, callees)
        if scope.get(self._function.__name__) is self:
            scope[self._function.__name__] = dispatcher
        return dispatcher


def _names(code: CodeType) -> Iterator[str]:
    """All that a function and those inside it refer to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _follow_callees(dispatcher: Any, callees: list[Any]) -> None:
    """numba keeps a compiled function until its own file changes; what it calls is compiled into it, so their files count, too.

    Callees carry the stamps of their own already. The stamp is private to numba: where a version has none, its own rule stays.
    """
    files: list[Any] = [getattr(getattr(called, "_cache", None), "_cache_file", None) for called in (dispatcher, *callees)]
    stamps = [file._source_stamp for file in files if hasattr(file, "_source_stamp")]
    if len(stamps) == len(files) > 1:
        files[0]._source_stamp = tuple(stamps)


def keep_freed_memory() -> bool:
    """For this process, from now on; whether it could be done. A step of the nano detector took 0.84 of the time, with two threads 0.69.

    The price: resident memory stays at its peak between steps.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    wishes = ((_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, (1 << 31) - 1), (_TOP_PAD, 64 << 20))
    return sum(libc.mallopt(option, value) for option, value in wishes) == len(wishes)


def killing_signal(code: str, *arguments: str) -> int | None:
    """The signal that ends a Python process which runs CODE with these ARGUMENTS; None if it ends by itself, well or with an exception.

    Some virtual machines offer vector instructions (AMX, for bfloat16 and int8) and then refuse them: SIGILL.
    """
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True).returncode
    return -ended if ended < 0 else None
