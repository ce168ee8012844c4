"""numba with our settings: compiled loops are kept on disk, release the interpreter lock, and stay plain while shapes are checked."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """Compile on first call. The tests' shape checks wrap every function of the package; numba needs the one inside."""
    plain = inspect.unwrap(function)
    dispatcher = numba.njit(cache=True, nogil=True, boundscheck=False)(plain)
    _follow_callees(dispatcher, plain)
    return cast(Function, dispatcher)


def _follow_callees(dispatcher: Any, function: Callable[..., Any]) -> None:
    """numba keeps a compiled function until its own file changes; what it calls is compiled into it, so their files count, too.

    The stamp is private to numba: where a version has none, its own rule stays.
    """
    files: list[Any] = [getattr(getattr(called, "_cache", None), "_cache_file", None) for called in (dispatcher, *_callees(function))]
    stamps = [file._source_stamp for file in files if hasattr(file, "_source_stamp")]
    if len(stamps) == len(files) > 1:
        files[0]._source_stamp = tuple(stamps)


def _callees(function: Callable[..., Any]) -> list[Any]:
    """Compiled functions that its code names; those come from above it, so they carry their own callees' stamps already."""
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [called for called in named if isinstance(called, numba.core.dispatcher.Dispatcher)]
