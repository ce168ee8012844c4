"""numba with our settings: compiled loops are kept on disk, release the interpreter lock, and stay plain while shapes are checked."""

import inspect
from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable)


def compiled(function: Function) -> Function:
    """Compile on first call. The tests' shape checks wrap every function of the package; numba needs the one inside."""
    return cast(Function, numba.njit(cache=True, nogil=True, boundscheck=False)(inspect.unwrap(function)))
