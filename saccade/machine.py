"""THE MACHINE: numba with our settings, glibc's malloc, Ctrl-C, missing packages, the device, processes for code that may crash."""

import ctypes
import faulthandler
import gc
import inspect
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, update_wrapper
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeVar, cast

from saccade.types import InputError

Function = TypeVar("Function", bound=Callable)

FEW_EVENTS = 4_000_000  # numpy counts and unpacks them in the time that numba takes to load

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


def compiler_pays(events: int) -> bool:
    """Whether compiled loops are worth what numba takes to load, half a second, after so many events of a recording; numpy's are slower."""
    return events >= FEW_EVENTS or "numba" in sys.modules


def keep_freed_memory() -> bool:
    """For this process, from now on; whether it could be done. A step of the nano detector took 0.84 of the time, with two threads 0.69.

    The price: resident memory stays at its peak between steps.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    wishes = ((_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, (1 << 31) - 1), (_TOP_PAD, 64 << 20))
    return sum(libc.mallopt(option, value) for option, value in wishes) == len(wishes)


def allow_open_files() -> None:
    """As many as the system lets this process have: 1,024 are usual, and a large data set on many cores may need more."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def interruptible() -> Iterator[None]:
    """While the block runs, Ctrl-C raises KeyboardInterrupt, and none is lost.

    Modules in C drop what is raised while they are imported, as Python does with what is raised in `__del__`: so it is raised soon after.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    timers = []

    def soon() -> None:
        timers.append(threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)))
        timers[-1].daemon = True
        timers[-1].start()

    def interrupt(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                soon()
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    def unraisable(found: Any) -> None:
        (soon() if issubclass(found.exc_type, KeyboardInterrupt) else hook(found))

    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = hook


def killing_signal(code: str, *arguments: str) -> int | None:
    """The signal that ends a Python process which runs CODE with these ARGUMENTS; None if it ends by itself, well or with an exception.

    Some virtual machines offer vector instructions (AMX, for bfloat16 and int8) and then refuse them: SIGILL.
    """
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True).returncode
    return -ended if ended < 0 else None


def check_extra(what: Path | str, package: str, extra: str) -> None:
    """Before any work: InputError if WHAT needs a package that isn't installed."""
    if find_spec(package) is None:
        raise InputError(f'{what}: needs the package {package}, which isn\'t installed; `pip install "saccade-events[{extra}]"`')


def resident_bytes() -> int:
    """Memory of this process that is in use; the most that was, where the system tells no more."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_named(name: str) -> str:
    """Where torch computes: auto is the GPU if there is one, cuda:1 the second of several. InputError if it isn't there."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(name)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"device={name!r:.80}: unknown; expected auto, cpu, cuda, or one of several GPUs, such as cuda:1") from error
    if place.type not in ("cpu", "cuda"):
        raise InputError(f"device={name}: saccade computes on cpu or cuda")
    count = torch.cuda.device_count()
    if place.type == "cuda" and (place.index or 0) >= count:
        raise InputError(f"device={name}: torch finds {count or 'no'} GPUs; use cpu, or install torch with CUDA")
    return name


def killing_signal_of_copy(work: Callable[[], object], *, seconds: int, room: int) -> int | None:
    """The signal that ends a copy of this process which does WORK; None if it ends by itself, well or with an exception.

    The copy gets SECONDS of processor time (SIGXCPU) and ROOM bytes beyond what this process has (SIGKILL). A fork costs milliseconds,
    needs no import, works in every worker process, and is gone when the call returns. WORK must be plain code: no compiled function of
    ours, no torch, whose locks another thread may hold at this moment.
    """
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: used + room}
    libc = ctypes.CDLL(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of locks held by other threads, see above
        copy = os.fork()
    if copy == 0:
        _work_as_copy(work, limits, libc)
    try:
        _, status = os.waitpid(copy, 0)
    except ChildProcessError:  # who ignores SIGCHLD learns nothing of its children
        return None
    except BaseException:  # Ctrl-C
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
        raise
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def _work_as_copy(work: Callable[[], object], limits: dict[int, int], libc: ctypes.CDLL) -> NoReturn:
    """Nothing of the process it was copied from may be touched: no clean-up, no output, and no handler of a signal."""
    try:
        gc.disable()
        faulthandler.disable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(100 * limits[resource.RLIMIT_CPU])  # if it waits for something that never comes; machines may be busy
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: the copy ends with the process that waits for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for limit, most in limits.items():
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        work()
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)
    except BaseException:  # the process it was copied from will meet and report it, too
        pass
    finally:
        os._exit(0)
