"""glibc's malloc told to keep what is freed: large tensors that come and go with every step would else cost fresh pages each time."""

import ctypes
import platform

# Numbers of malloc.h's options.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """For this process, from now on; whether it could be done. A step of the nano detector took 0.84 of the time, with two threads 0.69.

    The price: resident memory stays at its peak between steps.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    wishes = ((_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, (1 << 31) - 1), (_TOP_PAD, 64 << 20))
    return sum(libc.mallopt(option, value) for option, value in wishes) == len(wishes)
