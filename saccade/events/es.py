"""Event Stream files (.es) of DVS and ATIS cameras, decoded by `faery` (extra: es)."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from saccade.events.reader import IndexedReader
from saccade.types import Events, InputError

BYTES_AN_EVENT = 5  # of a DVS event, without the bytes for long pauses


class EsReader(IndexedReader):
    """Marks are (number of a packet,). faery decodes from the first byte only, so `between` decodes everything before it, too.

    Times count from the start of the recording. The format stores neither length nor end, so a file that is cut off gets no note.
    """

    format: ClassVar[str] = "ES"

    def __init__(self, path: Path, *, index_path: Path | None = None) -> None:
        try:
            from faery.file_decoder import Decoder
        except ImportError as error:
            raise InputError(f"{path}: Event Stream (.es) files need faery; `pip install 'saccade-events[es]'`") from error
        self._open = lambda: Decoder(path, file_type="es")
        try:
            width, height = self._open().dimensions()
        except Exception as error:  # faery raises RuntimeError, or plain Exception for other types of events
            raise InputError(
                f"{path}: no Event Stream that can be read ({error}); expected a whole file of version 2 with DVS or ATIS events"
            ) from error
        super().__init__(path, width, height, index_path=index_path)
        self._size = path.stat().st_size

    def chunks(self, mark: tuple[int, ...] | None = None) -> Iterator[tuple[tuple[int, ...], Events]]:
        first, read = mark[0] if mark else 0, 0
        for number, packet in enumerate(self._packets()):
            read += len(packet)
            self.fraction = min(read * BYTES_AN_EVENT / self._size, 1.0)
            if number >= first and len(packet):
                x, y, p = (np.ascontiguousarray(packet[name]) for name in ("x", "y", "on"))
                yield (number,), Events(packet["t"].astype(np.int64), x, y, p, self.width, self.height)
        self.fraction = 1.0

    def _packets(self) -> Iterator[np.ndarray]:
        try:
            yield from self._open()
        except Exception as error:
            raise InputError(f"{self.path}: the Event Stream is damaged ({error}); copy it again") from error
