"""Decompress packets and chunks with a limit on the result: a few damaged bytes must not fill the memory."""

import bz2

import lz4.frame
import zstandard

from saccade.types import InputError

LARGEST = 1 << 28  # bytes a packet; cameras send at most a few MB
FREE_BYTES = 64 << 20  # that any packet may unpack to, however small it is; four times its own size more


class UnpackingLimit:
    """What one pass over a file may unpack: real recordings stay far below, and what was made to harm ends here."""

    def __init__(self, size: int) -> None:
        self._bytes, self._records = 4 * FREE_BYTES + 200 * size, 500_000 + size // 2

    def spend(self, unpacked: int = 0, records: int = 0) -> None:
        self._bytes, self._records = self._bytes - unpacked, self._records - records
        if self._bytes < 0 or self._records < 0:
            what = "hundreds of times its size" if self._bytes < 0 else "more records than its size allows"
            raise InputError(f"unpacks to {what}; no real recording does, so the file was made to harm")


def room(stored: int) -> int:
    """Bytes to which a packet of STORED bytes may unpack."""
    return min(FREE_BYTES + 4 * stored, LARGEST)


def decompress(method: str, data: bytes, limit: int | None = None) -> bytes:
    """`method`: none, lz4 (frame), zstd or bz2. InputError if the data is damaged, cut, or larger than the limit."""
    limit = room(len(data)) if limit is None else min(limit, room(len(data)))
    try:
        result, whole = _METHODS[method](data, limit)
    except KeyError:
        raise InputError(f"compression {method!r} isn't known; expected one of {', '.join(_METHODS)}") from None
    except (RuntimeError, zstandard.ZstdError, OSError, ValueError, EOFError, MemoryError) as error:
        raise InputError(f"{method} data is damaged ({error})") from error
    if not whole or len(result) > limit:
        raise InputError(f"{method} data is cut, or larger than {limit >> 20} MB")
    return result


def _none(data: bytes, limit: int) -> tuple[bytes, bool]:
    return data, True


def _lz4(data: bytes, limit: int) -> tuple[bytes, bool]:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    result = decompressor.decompress(data, max_length=min(limit, 255 * len(data) + 64))  # LZ4 expands at most 255 times
    return result, decompressor.eof


def _zstd(data: bytes, limit: int) -> tuple[bytes, bool]:
    if zstandard.frame_content_size(data) > limit:
        return b"", False
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit), True


def _bz2(data: bytes, limit: int) -> tuple[bytes, bool]:
    decompressor = bz2.BZ2Decompressor()
    return decompressor.decompress(data, max_length=limit), decompressor.eof


_METHODS = {"none": _none, "lz4": _lz4, "zstd": _zstd, "bz2": _bz2}
