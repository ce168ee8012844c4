"""Files of detections: what was written is read back, also after the run was cut off in the middle."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.datasets.labels import RawLabels, is_coco, is_label_csv, read_boxes, read_coco, read_csv
from saccade.outputs.outputs import SUFFIXES, Outputs, OutputWriter, RunInfo, check_outputs, open_outputs
from saccade.outputs.picture import boxed_picture, class_marks
from saccade.outputs.tables import CocoWriter, CsvWriter, JsonLinesWriter, PropheseeWriter, read_json_lines
from saccade.outputs.viewer_logs import annotations
from saccade.types import Detections, InputError

CLASSES = ("car", "pedestrian, on foot", "two-wheeler")
RUN = RunInfo(recording="drive.raw", width=1280, height=720, classes=CLASSES, rate_hz=200, start_us=0, end_us=1_000_000)
FILES: dict[str, type[OutputWriter]] = {"jsonl": JsonLinesWriter, "csv": CsvWriter, "json": CocoWriter, "npy": PropheseeWriter}

pixel = st.floats(0, 1280, width=32)


@st.composite
def detections(draw: st.DrawFn, time_us: int, tracked: bool) -> Detections:
    rows = draw(
        st.lists(st.tuples(pixel, pixel, pixel, pixel, st.floats(0, 1, width=32), st.integers(0, 2), st.integers(-1, 99)), max_size=4)
    )
    a, b = (np.array([row[i : i + 2] for row in rows], np.float32).reshape(-1, 2) for i in (0, 2))
    boxes = np.concatenate((np.minimum(a, b), np.maximum(a, b)), axis=1)
    scores = np.array([row[4] for row in rows], np.float32)
    classes, tracks = (np.array([row[i] for row in rows], np.int64) for i in (5, 6))
    return Detections(boxes, scores, classes, time_us, tracks if tracked else None)


@st.composite
def runs(draw: st.DrawFn) -> list[Detections]:
    tracked = draw(st.booleans())
    times = draw(st.lists(st.integers(0, 1 << 40), max_size=5, unique=True).map(sorted))
    return [draw(detections(time_us, tracked)) for time_us in times]


def some(frames: int, seed: int = 0) -> list[Detections]:
    random = np.random.default_rng(seed)
    result = []
    for frame in range(frames):
        count = int(random.integers(0, 4))
        low = random.uniform(0, 600, (count, 2))
        boxes = np.concatenate((low, low + random.uniform(1, 100, (count, 2))), axis=1).astype(np.float32)
        scores, classes = random.uniform(0, 1, count).astype(np.float32), random.integers(0, 3, count)
        result.append(Detections(boxes, scores, classes, 5000 * (frame + 1), random.integers(-1, 9, count)))
    return result


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """What a full disk does: no file of this process can grow beyond SIZE bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write(path: Path, run: list[Detections]) -> Path:
    with Outputs([FILES[path.suffix[1:]](path, RUN)]) as outputs:
        for one in run:
            outputs.write(one)
    return path


def read(path: Path) -> RawLabels:
    """With the readers of data sets: detections can be labels."""
    if path.suffix == ".csv":
        assert is_label_csv(path)
        return read_csv(path, CLASSES, path)
    if path.suffix == ".json":
        assert is_coco(path)
        return read_coco(path, RUN.recording, CLASSES, path)
    return read_boxes(path)


def assert_same(labels: RawLabels, run: list[Detections], tolerance: float = 0) -> None:
    np.testing.assert_array_equal(labels.t, [one.time_us for one in run for _ in range(len(one))])
    boxes = np.concatenate([one.boxes for one in run] or [np.zeros((0, 4))])
    np.testing.assert_allclose(labels.boxes.astype(np.float32), boxes, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(labels.classes, np.concatenate([one.classes for one in run] or [np.zeros(0)]))
    tracks = [np.full(len(one), -1) if one.tracks is None else one.tracks for one in run]
    np.testing.assert_array_equal(labels.tracks, np.concatenate(tracks or [np.zeros(0)]))


def assert_equal(found: list[Detections], run: list[Detections]) -> None:
    assert [one.time_us for one in found] == [one.time_us for one in run]
    for a, b in zip(found, run, strict=True):
        np.testing.assert_array_equal(a.boxes, b.boxes)
        np.testing.assert_array_equal(a.scores, b.scores)
        np.testing.assert_array_equal(a.classes, b.classes)
        assert (a.tracks is None) == (b.tracks is None)
        if a.tracks is not None and b.tracks is not None:
            np.testing.assert_array_equal(a.tracks, b.tracks)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(run=runs())
def test_what_is_written_is_read(tmp_path: Path, run: list[Detections]) -> None:
    """To the bit, instants without objects included; a npy has none of those, and its corners are sums of float32."""
    assert_equal(list(read_json_lines(write(tmp_path / "a.jsonl", run))), run)
    instants = [one.time_us for one in run]
    for name in ("a.csv", "a.json"):
        labels = read(write(tmp_path / name, run))
        assert_same(labels, run)
        assert labels.instants_us.tolist() == instants
    assert_same(read(write(tmp_path / "a.npy", run)), run, tolerance=2e-4)


def test_pycocotools_loads_the_json(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    run = some(200)
    loaded = coco.COCO(write(tmp_path / "a.json", run))
    assert len(loaded.imgs) == 200
    assert len(loaded.anns) == sum(map(len, run))
    results = loaded.loadRes([{key: row[key] for key in ("image_id", "category_id", "bbox", "score")} for row in loaded.anns.values()])
    assert len(results.anns) == len(loaded.anns)


def test_scores_are_kept(tmp_path: Path) -> None:
    run = some(20)
    scores = np.concatenate([one.scores for one in run])
    np.testing.assert_array_equal(np.load(write(tmp_path / "a.npy", run))["class_confidence"], scores)
    rows = json.loads(write(tmp_path / "a.json", run).read_text())["annotations"]
    np.testing.assert_array_equal(np.array([row["score"] for row in rows], np.float32), scores)


@pytest.mark.parametrize("suffix", FILES)
def test_the_name_appears_when_the_file_is_whole(suffix: str, tmp_path: Path) -> None:
    path, part = tmp_path / f"a.{suffix}", tmp_path / f"a.part.{suffix}"
    with Outputs([FILES[suffix](path, RUN)]) as outputs:
        outputs.write(some(1)[0])
        assert part.exists()
        assert not path.exists()
        assert outputs.parts == [part]
    assert path.exists()
    assert not part.exists()


@pytest.mark.parametrize("suffix", FILES)
def test_interrupted_all_frames_are_in_the_part(suffix: str, tmp_path: Path) -> None:
    run = some(100)
    with pytest.raises(KeyboardInterrupt), Outputs([FILES[suffix](tmp_path / f"a.{suffix}", RUN)]) as outputs:  # noqa: PT012
        for one in run:
            outputs.write(one)
        raise KeyboardInterrupt
    assert not (tmp_path / f"a.{suffix}").exists()
    part = tmp_path / f"a.part.{suffix}"
    if suffix == "jsonl":
        assert_equal(list(read_json_lines(part)), run)
    else:
        assert_same(read(part), run, tolerance=2e-4)


@pytest.mark.parametrize(("frames", "kept"), [(1, 0), (63, 0), (64, 64), (1000, 960)])
@pytest.mark.parametrize("suffix", FILES)
def test_killed_the_part_is_readable(suffix: str, frames: int, kept: int, tmp_path: Path) -> None:
    """As kill -9 leaves it. Nothing is lost, but for COCO's last frames."""
    run = some(frames)
    output = FILES[suffix](tmp_path / f"a.{suffix}", RUN)
    for one in run:
        output.write(one)
    left = tmp_path / f"left.{suffix}"
    left.write_bytes(output.part.read_bytes())
    output.stop()
    if suffix == "jsonl":
        assert_equal(list(read_json_lines(left)), run)
    elif suffix == "json":
        found = len(read(left).instants_us)
        assert kept <= found <= frames
        assert_same(read(left), run[:found])
    else:
        assert_same(read(left), run, tolerance=2e-4)


def test_a_full_disk_leaves_readable_parts(tmp_path: Path) -> None:
    """No file may grow beyond 100 kB: each in turn is the one that can't go on, and the others end where it did."""
    run = some(5000)
    for suffix in FILES:
        paths = [tmp_path / f"{suffix}.{suffix}", tmp_path / f"with_{suffix}.npy"]
        refused = pytest.raises(InputError, match="can't go on writing at")
        with largest_file(100_000), refused, Outputs([FILES[path.suffix[1:]](path, RUN) for path in paths]) as outputs:
            for one in run:
                outputs.write(one)
        part = tmp_path / f"{suffix}.part.{suffix}"
        assert not paths[0].exists()
        assert part.stat().st_size > 50_000
        if suffix == "jsonl":
            found = list(read_json_lines(part))
            assert_equal(found, run[: len(found)])
            continue
        labels = read(part)
        frames = int(labels.t[-1]) // 5000
        assert frames > 100
        assert_same(labels, [one for one in run if one.time_us <= labels.t[-1]], tolerance=2e-4)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't write there"):
        JsonLinesWriter(tmp_path / "nowhere" / "a.jsonl", RUN)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", some(3))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InputError, match="line 3"):
        list(read_json_lines(path))


def test_all_outputs_are_opened_or_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't write there"):
        open_outputs([tmp_path / "a.jsonl", tmp_path / "nowhere" / "a.csv"], RUN)
    assert not list(tmp_path.iterdir())
    with open_outputs([tmp_path / f"a.{suffix}" for suffix in FILES], RUN) as outputs:
        assert [type(output) for output in outputs.outputs] == list(FILES.values())
        assert {f".{suffix}" for suffix in FILES} <= set(SUFFIXES)


def test_outputs_are_checked_before_anything_is_computed(tmp_path: Path) -> None:
    there = tmp_path / "there.csv"
    there.touch()
    for paths, message in (
        ([tmp_path / "a.txt"], "unknown suffix"),
        ([tmp_path / "a.csv", tmp_path / "a.csv"], "named twice"),
        ([tmp_path / "drive.npy"], "the recording itself"),
        ([there], "exists already"),
    ):
        with pytest.raises(InputError, match=message):
            check_outputs(paths, tmp_path / "drive.npy", overwrite=False)
    check_outputs([there, Path("-"), tmp_path / "A.MP4"], tmp_path / "drive.npy", overwrite=True)


HOSTILE = ("</script><script>alert(1)</script>", 'a,b;c\t"d"', "=cmd|' /C calc'!A0", "$\\frac{", "\u202etram 電車 🚋", "../../x", "%s{}")


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_hostile_class_names_stay_names(suffix: str, tmp_path: Path) -> None:
    """A class name is text in every format, never markup, a separator or a path."""
    classes = tuple(name for name in HOSTILE if "\t" not in name or suffix != ".csv")
    run = replace(RUN, classes=classes)
    boxes = np.tile(np.array([[1, 2, 30, 40]], np.float32), (len(classes), 1))
    found = Detections(boxes, np.ones(len(classes), np.float32), np.arange(len(classes)), 5000)
    path = tmp_path / f"a{suffix}"
    with Outputs([FILES[suffix[1:]](path, run)]) as outputs:
        outputs.write(found)
    if suffix == ".csv":
        assert read_csv(path, classes, path).classes.tolist() == list(range(len(classes)))
    elif suffix == ".json":
        assert [item["name"] for item in json.loads(path.read_text())["categories"]] == list(classes)
    else:
        assert json.loads(path.read_text())["names"] == list(classes)


def test_hostile_class_names_are_drawn_and_logged() -> None:
    boxes = np.tile(np.array([[1, 2, 30, 40]], np.float32), (len(HOSTILE), 1))
    found = Detections(boxes, np.ones(len(HOSTILE), np.float32), np.arange(len(HOSTILE)), 5000)
    assert [text["text"].rsplit(" ", 1)[0] for text in annotations(found, HOSTILE)["texts"]] == list(HOSTILE)
    picture = np.zeros((64, 64, 3), np.uint8)
    assert boxed_picture(picture, class_marks(boxes, found.classes, HOSTILE)).any()
