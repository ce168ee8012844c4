"""Event Stream files: written by hand and by faery's own encoder, cut, damaged, of other types, and without faery."""

import sys
from pathlib import Path

import numpy as np
import pytest

from saccade.events.open import open_events
from saccade.types import InputError
from tests.make.es import write
from tests.make.events import assert_equal, collect, random_events

pytest.importorskip("faery")
SOURCE = random_events(500, width=64, height=48, start_us=5_000)


def test_a_file_by_faery(tmp_path: Path) -> None:
    import faery

    rows = np.zeros(len(SOURCE), faery.EVENTS_DTYPE)
    rows["t"], rows["x"], rows["y"], rows["on"] = SOURCE.t, SOURCE.x, SOURCE.y, SOURCE.p
    faery.events_stream_from_array(rows, (64, 48)).to_file(tmp_path / "a.es", zero_t0=False)
    assert (tmp_path / "a.es").read_bytes() == write(tmp_path / "b.es", SOURCE).read_bytes()
    with open_events(tmp_path / "a.es") as reader:
        assert (reader.format, reader.width, reader.height) == ("ES", 64, 48)
        assert_equal(collect(reader), SOURCE)


def test_the_first_bytes_decide_and_not_the_name(tmp_path: Path) -> None:
    with open_events(write(tmp_path / "a.bin", SOURCE)) as reader:
        assert_equal(collect(reader), SOURCE)


def test_several_packets_and_random_access(tmp_path: Path) -> None:
    many = random_events(60_000, width=64, height=48)
    with open_events(write(tmp_path / "a.es", many)) as reader:
        assert len(reader.index.marks) > 2
        assert_equal(collect(reader), many)
        for start_us, end_us in ((0, 1), (30_000, 31_000), (99_000, 10**9)):
            assert_equal(reader.between(start_us, end_us), many.between(start_us, end_us))


def test_cut_at_any_byte(tmp_path: Path) -> None:
    data = write(tmp_path / "whole.es", SOURCE[:50]).read_bytes()
    path = tmp_path / "cut.es"
    most = 0
    for size in range(1, len(data)):
        path.write_bytes(data[:size])
        try:
            with open_events(path) as reader:
                got = collect(reader)
        except InputError:
            assert size < 20  # of the header
            continue
        assert_equal(got, SOURCE[: len(got)])
        most = max(most, len(got))
    assert most == 49


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kind": 0}, "unsupported type"), ({"kind": 9}, "unsupported type"), ({"version": b"\1\0\0"}, r"expected 2\.x\.y, got 1\.0\.0")],
)
def test_other_types_and_versions_are_refused(options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"a\.es: .*{message}"):
        open_events(write(tmp_path / "a.es", SOURCE, **options))


def test_damage_is_told(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "a.es", SOURCE).read_bytes())
    data[1000:1020] = b"\x7f" * 20
    (tmp_path / "a.es").write_bytes(data)
    with pytest.raises(InputError, match=r"a\.es: the Event Stream is damaged"), open_events(tmp_path / "a.es") as reader:
        collect(reader)


def test_without_faery_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faery.file_decoder", None)
    with pytest.raises(InputError, match=r"pip install 'saccade-events\[es\]'"):
        open_events(write(tmp_path / "a.es", SOURCE))
