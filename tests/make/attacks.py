"""Files that are made to harm: small ones that would take gigabytes or minutes."""

import json
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import zstandard
from lz4 import frame as lz4_frame
from safetensors.torch import save_file

from saccade.config import presets
from saccade.model.detector import Detector
from tests.make import aedat4
from tests.make.events import random_events

GIGABYTE = 1 << 30
STORED, DEFLATED, BZIP2, LZMA = 0, 8, 12, 14
EVENTS = random_events(100, width=64, height=48, span_us=30_000, start_us=5_000)
_BLOCK = zlib.compressobj(9, zlib.DEFLATED, -15)
SPACES = _BLOCK.compress(b" " * (1 << 20)) + _BLOCK.flush(zlib.Z_FULL_FLUSH)  # 1 MB; may be repeated, since a flush forgets what was before


def zipped(path: Path, members: list[tuple[str, int, bytes, int]]) -> Path:
    """A zip of (name, method, bytes as stored, stated size); checksums are wrong, which shows only after all has been unpacked."""
    body, directory = b"", b""
    for name, method, data, size in members:
        head = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 0, 0, len(data), size, len(name), 0)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + head + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\x03\x04" + head + name.encode() + data
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(body + directory + b"PK\x05\x06" + end)
    return path


def deflated(start: bytes, size: int) -> bytes:
    """START, then spaces up to about SIZE bytes, as raw deflate: a thousandth of that."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(start) + compressor.flush(zlib.Z_FULL_FLUSH) + SPACES * (size >> 20) + b"\x03\x00"


def npy(size: int, *, stated: int | None = None) -> bytes:
    """Header of an array of int64 of SIZE bytes; STATED: the length that the header claims to have itself."""
    text = repr({"descr": "<i8", "fortran_order": False, "shape": (size // 8,)}).encode()
    text += b" " * (-(12 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", stated or len(text)) + text


def npz_of(method: int, compress: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        columns = {name: np.zeros(8, np.int64) for name in "txyp"}
        start = npy(64)
        return zipped(
            folder / "a.npz", [(f"{n}.npy", method, compress(start + c.tobytes()), len(start) + c.nbytes) for n, c in columns.items()]
        )

    return write


def npz_header(folder: Path) -> Path:
    size = 2 * GIGABYTE - 1
    return zipped(folder / "a.npz", [(f"{name}.npy", DEFLATED, deflated(npy(64, stated=size)[:12], size), size) for name in "txyp"])


def npz_thousandfold(folder: Path) -> Path:
    size = GIGABYTE // 2
    return zipped(folder / "a.npz", [(f"{name}.npy", DEFLATED, deflated(npy(size), size), size + len(npy(size))) for name in "txyp"])


def labels_thousandfold(folder: Path) -> Path:
    size = 2 * GIGABYTE
    return zipped(folder / "labels.npz", [("labels.npy", DEFLATED, deflated(npy(size), size), size + len(npy(size)))])


def _mcap_chunk(method: str, records: bytes) -> bytes:
    packed = zstandard.compress(records) if method == "zstd" else lz4_frame.compress(records)
    text = method.encode()
    body = struct.pack("<QQQI", 0, 0, len(records), 0) + struct.pack("<I", len(text)) + text + struct.pack("<Q", len(packed)) + packed
    return b"\x06" + struct.pack("<Q", len(body)) + body


def mcap_tiny_records(folder: Path) -> Path:
    path = folder / "a.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + _mcap_chunk("zstd", (b"\x0f" + bytes(8)) * 7_000_000))
    return path


def mcap_many_chunks(folder: Path) -> Path:
    """Each of 14 kB, one record of 60 MB."""
    record = b"\x0f" + struct.pack("<Q", 60 << 20) + bytes(60 << 20)
    path = folder / "a.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + _mcap_chunk("zstd", record) * 400)
    return path


def bag_tiny_records(folder: Path) -> Path:
    records = bytes(8) * 8_000_000  # empty header, no data
    packed = lz4_frame.compress(records)
    fields = (b"op=\x05", b"compression=lz4", b"size=" + struct.pack("<I", len(records)))
    head = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    path = folder / "a.bag"
    path.write_bytes(b"#ROSBAG V2.0\n" + struct.pack("<I", len(head)) + head + struct.pack("<I", len(packed)) + packed)
    return path


def aedat4_thousandfold(folder: Path) -> Path:
    """Packets of zstd that become 60 MB each."""
    path = folder / "a.aedat4"
    head = aedat4.header(EVENTS, 3, -1, ("EVTS",), True)
    one = aedat4.event_packet(random_events(3_700_000, width=64, height=48))
    packed = zstandard.compress(one[:1000] + bytes(len(one) - 1000))
    path.write_bytes(head + (struct.pack("<ii", 0, len(packed)) + packed) * 100)
    return path


def hdf5(path: Path, columns: dict[str, np.ndarray] | None = None, *, size: bool = True, **options: object) -> h5py.File:
    """An open recording with these columns; without, with four events."""
    columns = columns or {"t": np.arange(4), "x": np.zeros(4, "u2"), "y": np.zeros(4, "u2"), "p": np.zeros(4, "u1")}
    file = h5py.File(path, "w")
    for name, values in columns.items():
        file.create_dataset(f"events/{name}", data=values, **options)
    if size:
        file.attrs["width"], file.attrs["height"] = 64, 48
    return file


def hdf5_references(folder: Path) -> Path:
    """An attribute with 3,000 references to one text of 2 MB."""
    path = folder / "a.h5"
    with hdf5(path, size=False) as file:
        file.attrs["text"] = "x" * (2 << 20)
        file.attrs["geometry"] = np.array(["yy"] * 3000, h5py.string_dtype())
    data = path.read_bytes()
    size = struct.pack("<I", 2 << 20)
    at = data.index(size, data.index(b"text\0"))
    one, first = data[at : at + 16], data.index(struct.pack("<I", 2), data.index(b"geometry\0"))
    while data[first + 16 : first + 20] != struct.pack("<I", 2):
        first = data.index(struct.pack("<I", 2), first + 1)
    path.write_bytes(data[:first] + one * 3000 + data[first + 48000 :])
    return path


def hdf5_chunks(folder: Path) -> Path:
    """One chunk of 200 MB a column; as zeros, compressed to a thousandth."""
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        for name in "txyp":
            dataset = file.create_dataset(f"events/{name}", (25 << 20,), "<i8", chunks=(25 << 20,), compression="gzip")
            block = zlib.compressobj(9)
            packed = block.compress(bytes(25 << 23)) + block.flush()
            dataset.id.write_direct_chunk((0,), packed)
        file.attrs["width"], file.attrs["height"] = 64, 48
    return path


def hdf5_zeros(folder: Path) -> Path:
    """Without a sensor size, which then is inferred from two billion events; 300 kB."""
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        for name in "txyp":
            dataset = file.create_dataset(f"events/{name}", (1 << 31,), "u1", chunks=(1 << 22,), compression="gzip")
            packed = zlib.compress(bytes(1 << 22))
            for first in range(0, 1 << 31, 1 << 22):
                dataset.id.write_direct_chunk((first,), packed)
    return path


def hdf5_wide_number(folder: Path) -> Path:
    """A single number t_offset of two gigabytes, never written."""
    path = folder / "a.h5"
    with hdf5(path) as file:
        file.create_dataset("t_offset", (1,), f"S{2 * GIGABYTE - 1}", chunks=(1,), fillvalue=None)
    return path


def csv_class(folder: Path) -> Path:
    return _labelled(folder, "t_us,x,y,w,h,class\n10000,1,1,5,5,999999999\n")


def csv_classes(folder: Path) -> Path:
    return _labelled(folder, "t_us,x,y,w,h,class\n" + "".join(f"10000,1,1,5,5,c{i}\n" for i in range(100_000)))


def csv_blank_lines(folder: Path) -> Path:
    return _labelled(folder, "t_us,x,y,w,h,class\n10000,1,1,5,5,car\n" + ",\n" * (7 << 20))


def csv_one_long_line(folder: Path) -> Path:
    return _labelled(folder, "t_us,x,y,w,h,class\n" + "," * (10 << 20))


def coco_classes(folder: Path) -> Path:
    images = [{"id": 0, "file_name": "a.h5", "time_us": 10_000}]
    boxes = [{"image_id": 0, "category_id": i, "bbox": [1, 1, 5, 5]} for i in range(100_000)]
    (folder / "labels.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": [{"id": i, "name": f"c{i}"} for i in range(100_000)]})
    )
    hdf5(folder / "a.h5").close()
    return folder


def classes_txt(folder: Path) -> Path:
    (folder / "classes.txt").write_text("".join(f"c{i}\n" for i in range(100_000)))
    return _labelled(folder, "t_us,x,y,w,h,class\n" + "".join(f"10000,1,1,5,5,c{i}\n" for i in range(100_000)))


def _labelled(folder: Path, text: str) -> Path:
    hdf5(folder / "a.h5").close()
    (folder / "a.csv").write_text(text)
    return folder


def checkpoint_deflated(folder: Path) -> Path:
    """data.pkl: a text of 2 GB."""
    size = 2 * GIGABYTE
    start = b"\x80\x02X" + struct.pack("<I", size - 64)
    members = [("archive/data.pkl", DEFLATED, deflated(start, size), size), ("archive/version", STORED, b"3\n", 2)]
    return zipped(folder / "a.ckpt", members)


class _Expanded:
    """Pickles as a tensor of 10^10 numbers on a storage of one."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __reduce__(self) -> tuple[object, ...]:
        return torch._utils._rebuild_tensor_v2, (
            torch.storage.TypedStorage(wrap_storage=torch.zeros(1).untyped_storage(), dtype=torch.float32, _internal=True),
            0,
            self.shape,
            (0,) * len(self.shape),
            False,
            {},
        )


def checkpoint_expanded(folder: Path) -> Path:
    path = folder / "a.ckpt"
    keys = {f"mdl.backbone.stages.{i}.downsample_cf2cl.conv.weight": (32 << i, 20 if i == 0 else 16 << i, 7, 7) for i in range(4)}
    tensors: dict[str, object] = {name: _Expanded(*shape) for name, shape in keys.items()}
    tensors["mdl.yolox_head.cls_preds.0.weight"] = _Expanded(2, 64, 1, 1)
    tensors["mdl.backbone.stages.0.s5_block.s5.seq.Lambda"] = _Expanded(10**9, 2)
    torch.save({"state_dict": tensors}, path, pickle_module=pickle)
    return path


def weights_with(**changes: Any) -> Callable[[Path], Path]:
    """A nano detector's weights, whose configuration asks for something else."""

    def write(folder: Path) -> Path:
        detector = Detector(presets["s5-vit-nano"]())
        config, tensors = json.loads(detector.config.to_json()), dict(detector.state_dict())
        for name, value in changes.items():
            (config["backbone"] if name in config["backbone"] else config)[name] = value
        for stage, dim in enumerate(changes.get("dims", ())):  # as much as a check of the first layers would look at
            tensors[f"backbone.stages.{stage}.downsample.weight"] = torch.zeros(dim, 1, 1, 1)
        path = folder / "a.safetensors"
        save_file(tensors, path, {"saccade": "1", "config": json.dumps(config), "training": "{}"})
        return path

    return write


# name: (what is opened, maker)
BOMBS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "npz header": ("events", npz_header),
    "npz thousandfold": ("events", npz_thousandfold),
    "mcap tiny records": ("events", mcap_tiny_records),
    "mcap many chunks": ("events", mcap_many_chunks),
    "bag tiny records": ("events", bag_tiny_records),
    "aedat4 thousandfold": ("events", aedat4_thousandfold),
    "hdf5 references": ("events", hdf5_references),
    "hdf5 chunks": ("events", hdf5_chunks),
    "hdf5 zeros": ("events", hdf5_zeros),
    "hdf5 wide number": ("events", hdf5_wide_number),
    "labels thousandfold": ("labels", labels_thousandfold),
    "csv class": ("dataset", csv_class),
    "csv classes": ("dataset", csv_classes),
    "csv blank lines": ("dataset", csv_blank_lines),
    "csv one long line": ("dataset", csv_one_long_line),
    "coco classes": ("dataset", coco_classes),
    "classes.txt": ("dataset", classes_txt),
    "checkpoint deflated": ("weights", checkpoint_deflated),
    "checkpoint expanded": ("weights", checkpoint_expanded),
    "weights bottlenecks": ("weights", weights_with(bottlenecks=10**6)),
    "weights bins": ("weights", weights_with(channels=2 * 10**9, bins=10**9)),
    "weights head": ("weights", weights_with(head_width=10**6)),
    "weights dims": ("weights", weights_with(dims=(64, 128, 256, 20_000))),
    "weights classes": ("weights", weights_with(classes=tuple(f"c{i}" for i in range(100_000)))),
}
