"""Photographs become events: boxes are what is drawn, nothing happens where nothing moves, any label file is read, or refused by name."""

import io
import json
import lzma
import zipfile
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.commands.simulate import simulate as command
from saccade.datasets.open import open_dataset
from saccade.events.open import open_events
from saccade.simulate.cutouts import DISTRACTOR, Cutouts, PhotosConfig, photo_set, prepare_cutouts, to_linear
from saccade.simulate.dataset import DatasetConfig, read_config, read_truth, write_dataset
from saccade.simulate.evidence import Evidence
from saccade.simulate.photo_choice import choose_panorama, join_photos
from saccade.simulate.photo_plan import _crossing, _lamp, _road, draw_setting, plan_photo_camera
from saccade.simulate.photo_scene import PhotoScene, draw_sensor, make_photo_scene
from saccade.simulate.photo_texture import Exposure, turn
from saccade.simulate.photos import CAR, PEDESTRIAN, TWO_WHEELER, PhotoObject, PhotoSet, decode, join_riders, open_photos
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.simulation import Scene, Truth, simulate
from saccade.types import Events, InputError

pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")

REAL = Path(__file__).parents[3] / "shared/photos/photos_val.json"
QUIET = SensorConfig(shot_hz=0, leak_hz=0, hot_fraction=0)
NAMES = ("person", "bicycle", "car")
GLARING = 50.0  # an intensity that nothing else has


def paint(rng: np.random.Generator) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """A street of noise with a car, a person and a bicycle in colours of their own, and their labels."""
    image = rng.integers(90, 140, (96, 128, 3), dtype=np.uint8)
    marks = []
    y, x = np.mgrid[:96, :128]
    things = ((1, (12, 20, 14, 40), (200, 40, 40)), (3, (40, 50, 44, 24), (30, 30, 200)), (2, (96, 18, 24, 26), (20, 190, 30)))
    for category, (left, top, wide, high), colour in things:
        inside = abs((2 * x + 1 - 2 * left - wide) / wide) ** 2.5 + abs((2 * y + 1 - 2 * top - high) / high) ** 2.5 < 1
        image[inside] = np.clip(np.array(colour) + rng.integers(-20, 20, (inside.sum(), 3)), 0, 255)
        marks.append({"category_id": category, "bbox": [left, top, wide, high]})
    return image, marks


def write_photos(folder: Path, number: int = 12, **changes: Any) -> Path:
    """Labels and images beside them."""
    rng = np.random.default_rng(4)
    content: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": i + 1, "name": name} for i, name in enumerate(NAMES)]}
    (folder / "images").mkdir(parents=True)
    for i in range(number):
        image, marks = paint(rng)
        Image.fromarray(image).save(folder / f"images/{i:03d}.png")
        content["images"].append({"id": i, "file_name": f"{i:03d}.png", "width": 128, "height": 96})
        content["annotations"] += [mark | {"id": len(content["annotations"]), "image_id": i} for mark in marks]
    (folder / "labels.json").write_text(json.dumps(content | changes))
    return folder / "labels.json"


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def photos(labels: Path) -> PhotoSet:
    return open_photos(labels)


@pytest.fixture(scope="module")
def cutouts(labels: Path, photos: PhotoSet, tmp_path_factory: pytest.TempPathFactory) -> Cutouts:
    return prepare_cutouts(
        tmp_path_factory.mktemp("cut") / "cutouts.npz", PhotosConfig(labels=str(labels), digest=photos.digest, cutouts=40)
    )


def scene_of(seed: int, photos: PhotoSet, cutouts: Cutouts, moves: bool, seconds: float = 1.0) -> PhotoScene:
    return make_photo_scene(seed, photos, cutouts, 96, 80, seconds, standing=0.0 if moves else 1.0)


def test_cut_outs_have_the_shapes_that_were_painted(cutouts: Cutouts) -> None:
    """Known sizes: GrabCut finds the coloured shapes; nothing else is kept."""
    sizes = {CAR: (44, 24), PEDESTRIAN: (14, 40), TWO_WHEELER: (24, 26)}
    for class_id, size in sizes.items():
        found = cutouts.of(None, class_id)
        assert len(found)
        for i in found:
            mask = cutouts.get(int(i))[1]
            extent = np.ptp(np.argwhere(mask), axis=0)[::-1] + 1
            assert np.abs(extent - size).max() <= 3
    assert len(cutouts.of(None, DISTRACTOR))


def test_a_prepared_file_of_cut_outs_is_used_again_and_another_is_not(labels: Path, photos: PhotoSet, tmp_path: Path) -> None:
    config = PhotosConfig(labels=str(labels), digest=photos.digest, cutouts=10)
    first = prepare_cutouts(tmp_path / "c.npz", config)
    modified = (tmp_path / "c.npz").stat().st_mtime_ns
    again = prepare_cutouts(tmp_path / "c.npz", config)
    assert (tmp_path / "c.npz").stat().st_mtime_ns == modified
    for item in fields(Cutouts):
        assert np.array_equal(getattr(first, item.name), getattr(again, item.name))
    prepare_cutouts(tmp_path / "c.npz", replace(config, digest="of another label file"))
    assert (tmp_path / "c.npz").stat().st_mtime_ns != modified
    (tmp_path / "c.npz").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"c\.npz"):
        prepare_cutouts(tmp_path / "c.npz", config)


def test_both_kinds_of_scenes_are_scenes(photos: PhotoSet, cutouts: Cutouts) -> None:
    from saccade.simulate.plan import make_scene

    for scene in (scene_of(0, photos, cutouts, moves=True), make_scene(0, 96, 80, 1.0)):
        assert isinstance(scene, Scene)
        assert scene.classes == ("car", "pedestrian", "two-wheeler")
        assert scene.intensity(500_000).shape == (80 * scene.finer, 96 * scene.finer)


@pytest.mark.parametrize("moves", [False, True])
def test_boxes_are_those_of_the_drawn_cut_outs(photos: PhotoSet, cutouts: Cutouts, moves: bool) -> None:
    """A cut-out that glares before a dark photograph: where it is drawn is its box, within a pixel."""
    checked = 0
    for seed in range(8):
        scene = scene_of(seed, photos, cutouts, moves)
        truth = scene.truth(np.array([123_457, 700_001]))
        for t, box, track in zip(truth.t, truth.boxes, truth.tracks, strict=True):
            if track >= len(scene.movers.class_id):
                continue
            texel = scene.movers.texel.copy()
            texel[:, 0], texel[:, 1] = GLARING, np.where(texel[:, 1] >= 0, texel[:, 1], 0)
            for k, start in enumerate(scene.movers.first_texel):
                if k != track:
                    texel[start : start + scene.movers.rows[k] * scene.movers.columns[k], 1] = 0
            alone = replace(scene, movers=scene.movers._replace(texel=texel), background=np.zeros_like(scene.background))
            glow = alone.intensity(int(t)) / GLARING >= 0.5
            rows, columns = np.flatnonzero(glow.any(axis=1)), np.flatnonzero(glow.any(axis=0))
            drawn = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / scene.finer
            assert np.abs(drawn - box).max() <= 1.1, (seed, t, track, drawn, box)
            checked += 1
    assert checked >= 8


def test_boxes_of_the_photograph_follow_its_pixels(photos: PhotoSet, cutouts: Cutouts) -> None:
    """The world's points, drawn as a bright box in the photograph, are where the label says while the camera pans, rolls and drives."""
    checked = 0
    for seed in range(16):
        scene = scene_of(seed, photos, cutouts, moves=True)
        fixtures, first = scene.fixtures, int(scene.fixtures.first_point[1])
        points = fixtures.point[:first]
        background = np.zeros_like(scene.background)
        texels = (points - scene.origin) * scene.density
        y, x = np.mgrid[: background.shape[0], : background.shape[1]] + 0.5
        centre, half = (texels.max(axis=0) + texels.min(axis=0)) / 2, np.ptp(texels, axis=0) / 2
        background[((x - centre[0]) / half[0]) ** 4 + ((y - centre[1]) / half[1]) ** 4 < 1] = 1
        movers = scene.movers._replace(texel=scene.movers.texel * np.float32([1, 0]))
        bright = replace(scene, background=background, movers=movers)
        truth = scene.truth(np.array([400_003, 999_999]))
        for t, box, track in zip(truth.t, truth.boxes, truth.tracks, strict=True):
            inside = box[0] > 0 and box[1] > 0 and box[2] < scene.width and box[3] < scene.height
            if track != len(scene.movers.class_id) or not inside:
                continue
            glow = bright.intensity(int(t)) >= 0.5
            rows, columns = np.flatnonzero(glow.any(axis=1)), np.flatnonzero(glow.any(axis=0))
            drawn = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / scene.finer
            assert np.abs(drawn - box).max() <= 1.6, (seed, t, drawn, box)
            checked += 1
    assert checked >= 4


def test_a_standing_camera_shows_nothing_of_its_photograph(photos: PhotoSet, cutouts: Cutouts) -> None:
    for seed in range(3):
        scene = scene_of(seed, photos, cutouts, moves=False, seconds=0.6)
        assert not scene.camera_moves
        assert len(scene.fixtures.class_id) == 0
        still = replace(scene, movers=scene.movers._replace(end_us=np.zeros_like(scene.movers.end_us)))
        assert not sum(map(len, simulate(still, QUIET)))
        events = Events.join(list(simulate(scene, QUIET)))
        if len(events):  # all events lie where a cut-out was, distractors included
            all_things = replace(scene, movers=scene.movers._replace(class_id=np.zeros_like(scene.movers.class_id)))
            near = np.zeros((80, 96), bool)
            from saccade.simulate.photo_render import query

            values = query(all_things.movers, all_things.fixtures, scene.camera, np.arange(0, 600_001, 5000), 96, 80)[2]
            for left, top, right, bottom in values[:, :4]:
                near[max(int(top) - 5, 0) : int(bottom) + 6, max(int(left) - 5, 0) : int(right) + 6] = True
            for border in (near[0], near[-1], near[:, 0], near[:, -1]):
                border[:] = True  # soft edges of what is just outside and has no label
            assert near[events.y, events.x].all()


def test_objects_of_the_photograph_have_labels_once_they_moved(photos: PhotoSet, cutouts: Cutouts) -> None:
    labelled = 0
    for seed in range(8):
        scene = scene_of(seed, photos, cutouts, moves=True)
        truth = scene.truth(np.arange(0, 1_000_001, 5000))
        own = truth.tracks - len(scene.movers.class_id)
        for n, seen_us in enumerate(scene.fixtures.seen_us):
            times = truth.t[own == n]
            assert not len(times) or times.min() >= seen_us > 0
            labelled += len(times) > 0
    assert labelled >= 4


@pytest.mark.parametrize("moves", [False, True])
def test_one_time_is_as_any_grid_and_drawing_changes_is_drawing_all(photos: PhotoSet, cutouts: Cutouts, moves: bool) -> None:
    scene = scene_of(2, photos, cutouts, moves)
    times = np.sort(np.random.default_rng(0).integers(0, 1_000_000, 15))
    together, alone = scene.truth(times), [scene.truth(times[i : i + 1]) for i in range(15)]
    for item in fields(together):
        assert np.array_equal(getattr(together, item.name), np.concatenate([getattr(one, item.name) for one in alone]))
    for i, (t, image, _) in enumerate(scene.pictures()):
        if i % 31 == 0:
            assert np.array_equal(image, scene.intensity(t))
    one, other = (Events.join(list(simulate(scene, draw_sensor(1), chunk_us=chunk))) for chunk in (20_000, 333_000))
    for name in "txyp":
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert (np.diff(one.t) >= 0).all()
    assert one.x.max(initial=0) < 96
    for wrong in ([-1], [1_000_001], [5, 4]):
        with pytest.raises(InputError, match="within 0 to 1000000 us"):
            scene.truth(np.array(wrong))


def test_a_turned_cut_out_keeps_its_pixels_inside_its_mask() -> None:
    """A bright bar on black: however it is turned and sheared, the mask is where the bar is, and reaches all four sides."""
    intensity = np.zeros((40, 60), np.float32)
    intensity[10:30, 10:50] = 1.0
    for seed in range(20):
        turned, mask = turn(np.random.default_rng(seed), intensity, intensity > 0.5, 1.0)
        assert turned.shape == mask.shape
        assert np.abs(turned - mask).max() < 1e-5
        inside = mask >= 0.5
        assert all(side.any() for side in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))


def test_in_a_panorama_boxes_stay_on_their_pixels(tmp_path: Path) -> None:
    """Every kind of object has a colour of its own: it fills the middle of its boxes, in rows of other heights, too."""
    photos = open_photos(write_photos(tmp_path / "set", 4))
    pairs = [(photo, photos.read(photo)) for photo in photos.photos]
    low, image = pairs[3]
    low = replace(low, height=48, objects=())  # its upper half, without labels
    grid = [[pairs[0], (low, image[:48])], [pairs[1], pairs[2]]]
    joined, drawn = join_photos(grid)
    assert drawn.shape == (joined.height, joined.width, 3) == (48 + 96, 64 + 128, 3)
    assert joined.name == "000.png + 003.png + 001.png + 002.png"
    colours = {PEDESTRIAN: (200, 40, 40), CAR: (30, 30, 200), TWO_WHEELER: (20, 190, 30)}
    assert len(joined.objects) == 8  # of nine, one lies beyond the narrowest row
    for item in joined.objects:
        left, top, right, bottom = item.box
        assert 0 <= left < right <= joined.width
        middle = drawn[int((top + bottom) / 2), int((left + right) / 2)].astype(int)
        assert np.abs(middle - colours[item.class_id]).max() <= 30
        beside = drawn[int((top + bottom) / 2), max(int(left) - 2, 0)].astype(int)
        assert np.abs(beside - colours[item.class_id]).max() > 30


def test_a_panorama_fills_the_image_and_is_as_sharp_as_promised(photos: PhotoSet) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        (photo, image, unreadable), scale = choose_panorama(rng, photos, None, drives=seed % 2 == 0, width=320, height=200)
        assert image.shape == (photo.height, photo.width, 3)
        assert photo.width * scale >= 320 - 1e-6
        assert photo.height * scale >= 200 - 1e-6
        assert 0.7 <= scale <= 1.6
        assert not unreadable


def test_a_lamp_blinks_in_its_place_and_has_no_label(photos: PhotoSet, cutouts: Cutouts) -> None:
    rng = np.random.default_rng(0)
    setting = draw_setting(rng, 96, 80, 1_000_000, moves=False, drives=False)
    for _ in range(20):
        blinks = _lamp(rng, setting, Exposure(1.0, 1.0, 0.0, 0.5))
        assert {blink["class_id"] for blink in blinks} == {DISTRACTOR}
        assert len({(blink["x"], blink["y"]) for blink in blinks}) == 1
        times = [(blink["start_us"], blink["end_us"]) for blink in blinks]
        assert all(start < end for start, end in times)
        assert all(one[1] < other[0] for one, other in pairwise(times))


def test_scenes_and_sensors_are_as_varied_as_promised(photos: PhotoSet, cutouts: Cutouts) -> None:
    scenes = [make_photo_scene(seed, photos, cutouts, 96, 80, 1.0) for seed in range(60)]
    assert 0.4 <= np.mean([not scene.camera_moves for scene in scenes]) <= 0.75
    for standing, least, most in ((1.0, 0, 0), (0.0, 18, 20)):  # a camera that may move sometimes rests all the second
        chosen = [make_photo_scene(seed, photos, cutouts, 96, 80, 1.0, standing=standing) for seed in range(20)]
        assert least <= sum(scene.camera_moves for scene in chosen) <= most
    with pytest.raises(InputError, match=r"standing=1\.5"):
        DatasetConfig(standing=1.5)
    assert {scene.finer for scene in scenes} >= {1, 2}
    speeds = np.abs(np.concatenate([scene.movers.speed for scene in scenes]))
    assert speeds.max() > 50 * speeds[speeds > 0].min()
    sensors = [draw_sensor(seed) for seed in range(60)]
    assert min(sensor.threshold_on for sensor in sensors) < 0.13
    assert max(sensor.threshold_on for sensor in sensors) > 0.35
    assert 5 <= sum(sensor.burst > 0 for sensor in sensors) <= 30
    assert draw_sensor(7) == draw_sensor(7)


def test_on_a_road_sizes_belong_together_and_objects_pass_one_another() -> None:
    rng, ratios, hidden = np.random.default_rng(5), [], 0
    for _ in range(200):
        road = _road(rng, 256, 192)
        cars, people = ([road.side(rng, kind) for _ in range(20)] for kind in (CAR, PEDESTRIAN))
        ratios.append(np.mean(cars) / np.mean(people))
        rows = np.array([road.row(rng, 0) for _ in range(20)])
        hidden += int((np.diff(np.sort(rows)) < 0.5 * min(cars)).sum())
        assert min(cars) > 12
        assert ((rows > 0) & (rows < 192)).any()
    assert 1.8 < np.mean(ratios) < 2.6  # a car is twice as long as a person is tall, whatever the distance
    assert hidden > 0.8 * 200 * 19  # most share a line with another


def test_along_a_slanting_road_objects_start_on_its_lines_and_grow_downwards() -> None:
    rng, found = np.random.default_rng(5), 0
    for _ in range(200):
        setting = draw_setting(rng, 256, 192, 1_000_000, moves=False, drives=False)
        if setting.road is None or not setting.road.slant:
            continue
        for _ in range(5):
            path = _crossing(rng, setting, CAR, wide=40, tall=20, start_us=0)
            assert path["along_y"] / path["along_x"] == pytest.approx(np.tan(setting.road.slant))
            at_middle = path["y"] - (path["x"] - 128) * np.tan(setting.road.slant)
            assert np.abs(setting.road.lines - at_middle).min() < 2.5 * setting.road.metre_px
            assert np.sign(path["growth"]) == np.sign(path["along_y"])
            found += 1
    assert found > 100


def test_most_moving_cameras_move_when_the_recording_begins_and_stay_in_their_room() -> None:
    """A short recording would show nothing but the first slow moments of one that begins at rest."""
    rng, moving = np.random.default_rng(1), []
    for _ in range(300):
        setting = draw_setting(rng, 256, 192, 400_000, moves=True, drives=False)
        camera = plan_photo_camera(rng, setting, np.zeros(2), np.array([100.0, 60.0]))
        swings = bool((camera.shakes[:, 0] < 0).any())
        moving.append(swings or bool((camera.velocity[0] != 0).any()))
        assert camera.velocity[-1].tolist() == [0.0] * 4 or camera.knot_us[-1] >= 400_000
        assert (camera.offset[:, :2] <= np.array([100.0, 60.0]) + 3 * setting.unit + 1e-6).all()
        assert (camera.offset[:, :2] >= -3 * setting.unit - 1e-6).all()
    assert 0.7 <= np.mean(moving) <= 0.9


def test_a_camera_that_drives_goes_straight_on_and_up_and_down() -> None:
    rng, turns, ahead, bounces = np.random.default_rng(6), 0, 0, 0
    for _ in range(200):
        setting = draw_setting(rng, 256, 192, 1_000_000, moves=True, drives=True)
        camera = plan_photo_camera(rng, setting, np.zeros(2), np.array([100.0, 100.0]))
        moved = np.abs(camera.velocity).max(axis=0) > 0
        ahead += int(moved[3])
        turns += int(moved[0])
        bounces += bool((camera.shakes[:, 2] < camera.shakes[:, 3]).any())  # amplitudes to the side, and up and down
    assert ahead > 150  # the others stand at a light
    assert turns < 60
    assert bounces > 170


def test_cars_ahead_stand_on_the_road(photos: PhotoSet, cutouts: Cutouts) -> None:
    """Their feet are as far below the horizon as cars are tall, and most are before the point that the camera drives to."""
    found = []
    for seed in range(40):
        scene = make_photo_scene(seed, photos, cutouts, 256, 192, 0.5, standing=0.0, driving=1.0)
        movers = scene.movers
        for k in np.flatnonzero((movers.class_id == CAR) & (movers.follows > 0)):
            below = (movers.y[k] - scene.camera.vanish_y) / (movers.rows[k] * movers.scale[k])
            found.append((below, abs(movers.x[k] - scene.camera.vanish_x) / 256))
    below, aside = np.array(found).T
    assert len(found) > 20
    assert ((below > 0.3) & (below < 1.3)).all()
    assert np.median(aside) < 0.2


def test_more_drive_when_asked_to(photos: PhotoSet, cutouts: Cutouts) -> None:
    for driving in (0.0, 1.0):
        scenes = [make_photo_scene(seed, photos, cutouts, 96, 80, 1.0, standing=0.0, driving=driving) for seed in range(20)]
        drive = sum(bool((scene.camera.velocity[:, 3] != 0).any() and not (scene.camera.velocity[:, 2] != 0).any()) for scene in scenes)
        assert drive > 12 if driving else drive < 12
    with pytest.raises(InputError, match=r"driving=2"):
        DatasetConfig(driving=2.0)


def test_a_data_set_of_photographs_has_the_same_bytes_however_it_is_made(labels: Path, tmp_path: Path) -> None:
    photos = PhotosConfig(labels=str(labels), digest=open_photos(labels).digest, cutouts=12)
    config = DatasetConfig(recordings=3, seconds=0.2, width=64, height=48, photos=photos, split="val")
    write_dataset(tmp_path / "one", config, 1)
    done: list[str] = []

    def give_up(path: str, seconds: float) -> None:
        done.append(path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "two", config, 1, give_up)
    write_dataset(tmp_path / "two", config, 1)
    one, two = (
        {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        for folder in (tmp_path / "one", tmp_path / "two")
    )
    assert one == two
    assert len(open_dataset(tmp_path / "one", split="val").recordings) == 3
    recordings, labels_seen = sorted((tmp_path / "one/val").glob("*.h5")), 0
    for recording in recordings:
        times_us, stored = read_truth(recording)
        rebuilt = read_config(recording).scene(tmp_path / "one").truth(times_us)
        there = {(t, track): box for t, track, box in zip(rebuilt.t, rebuilt.tracks, rebuilt.boxes.tolist(), strict=True)}
        labels_seen += len(stored.t)
        assert all(there[t, track] == box for t, track, box in zip(stored.t, stored.tracks, stored.boxes.tolist(), strict=True))
    assert labels_seen
    assert read_config(recordings[0]).sensor == draw_sensor(800_000)


def truth_of(boxes: list[list[float]], times_us: np.ndarray) -> Truth:
    """Objects that stand where they are at all times."""
    count = len(boxes)
    rows = len(times_us) * count
    return Truth(
        np.repeat(times_us, count), np.tile(np.array(boxes, np.float32), (len(times_us), 1)), np.zeros(rows, np.int64),
        np.tile(np.arange(count), len(times_us)), np.zeros(rows, np.int64), np.ones(rows, np.float32), np.zeros(rows, np.float32),
    )  # fmt: skip


def test_an_object_has_no_label_until_its_events_have_shown_it() -> None:
    """One box gets a burst of events at 40 ms, one as many spread over a second, one only the noise that is expected."""
    times_us, rng = np.arange(0, 1_000_001, 5000), np.random.default_rng(2)
    truth = truth_of([[2, 2, 22, 22], [32, 2, 52, 22], [2, 32, 22, 52]], times_us)
    noise = rng.integers(0, 1_000_000, 800)  # 2 a second and pixel
    times = [rng.integers(36_000, 40_000, 90), rng.integers(0, 1_000_000, 90), noise]
    t = np.concatenate(times)
    corner = np.repeat([[2, 2], [32, 2], [2, 32]], [90, 90, 800], axis=0)
    x, y = (corner + rng.integers(0, 20, (len(t), 2))).T.astype(np.uint16)
    order = np.argsort(t)
    events = Events(t[order], x[order], y[order], np.ones(len(t), np.bool_), 64, 64)
    for chunk_us in (5_000, 20_000, 1_000_000):
        evidence = Evidence(truth, times_us, 64, 64, noise=2.0)
        for start in range(0, 1_000_000, chunk_us):
            first, last = np.searchsorted(events.t, [start, start + chunk_us])
            evidence.add(events[first:last])
        seen = evidence.seen()
        assert set(seen.tracks.tolist()) == {0}
        assert seen.t[0] == 40_000
        assert len(seen.t) == (times_us >= 40_000).sum()


def test_who_follows_keeps_its_place_while_the_camera_pans_and_drives(photos: PhotoSet, cutouts: Cutouts) -> None:
    """And stays within the camera's shaking; all others pass."""
    times, kept, moved = np.array([0, 900_000]), [], []
    for seed in range(60):
        scene = scene_of(seed, photos, cutouts, moves=True)
        if not len(scene.movers.class_id) or len(scene.camera.shakes):
            continue
        still = scene.movers._replace(speed=np.zeros_like(scene.movers.speed), distance=np.zeros_like(scene.movers.distance))
        calm = scene.camera._replace(velocity=scene.camera.velocity * (1, 1, 0, 1), offset=scene.camera.offset * (1, 1, 0, 1))
        truth = replace(scene, movers=still, camera=calm).truth(times)
        for track in np.unique(truth.tracks[truth.tracks < len(still.class_id)]):
            boxes = truth.boxes[truth.tracks == track]
            if len(boxes) == 2 and boxes.min() > 1 and (boxes[:, 2:] < (95, 79)).all():
                (kept if still.follows[track] else moved).append(float(np.abs(boxes[1] - boxes[0]).max()))
    assert len(kept) >= 3
    assert max(kept) < 0.01
    assert max(moved) > 1


def test_a_data_set_of_photographs_has_the_same_bytes_from_two_processes(
    labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting and recording both use the two."""
    monkeypatch.setattr("saccade.simulate.cutouts.BATCH", 6)
    photos = PhotosConfig(labels=str(labels), digest=open_photos(labels).digest, cutouts=8)
    config = DatasetConfig(recordings=2, seconds=0.1, width=48, height=32, photos=photos, split="train")
    contents = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        write_dataset(folder, config, processes)
        contents.append({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 8


def test_the_command_makes_a_data_set_and_names_what_is_wrong(labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(tmp_path / "set", photos=labels, cutouts=10, recordings=1, seconds=0.1, size="64x48", processes=1)
    assert "1 recordings of 0.1 s, 64 x 48" in capsys.readouterr().out
    with open_events(tmp_path / "set/train/000000000.h5") as reader:
        assert (reader.width, reader.height) == (64, 48)
    with pytest.raises(InputError, match="other settings"):
        command(tmp_path / "set", recordings=1, seconds=0.1, size="64x48", processes=1)
    with pytest.raises(InputError, match="--photos"):
        command(tmp_path / "set2", images=(labels.parent,))
    with pytest.raises(InputError, match="one folder"):
        command(tmp_path / "a", tmp_path / "b.h5", photos=labels)
    with pytest.raises(InputError, match=r"no\.json"):
        command(tmp_path / "set2", photos=tmp_path / "no.json")
    assert not (tmp_path / "set2").exists()


def test_labels_may_be_packed_and_images_in_a_zip(labels: Path, tmp_path: Path) -> None:
    (tmp_path / "l.json.xz").write_bytes(lzma.compress(labels.read_bytes()))
    with zipfile.ZipFile(tmp_path / "i.zip", "w") as archive:
        for file in sorted((labels.parent / "images").iterdir()):
            archive.write(file, f"some/folder/{file.name}")
    for images in ((), (tmp_path / "i.zip",)):
        found = open_photos(tmp_path / "l.json.xz", images)
        assert len(found.photos) == 12
        assert found.read(found.photos[3]).shape == (96, 128, 3)
    (tmp_path / "bad.zip").write_bytes(b"PK no zip")
    with pytest.raises(InputError, match=r"bad\.zip"):
        open_photos(labels, (tmp_path / "bad.zip",))


def test_a_rider_and_what_he_rides_are_one() -> None:
    bicycle = ("bicycle", PhotoObject(TWO_WHEELER, (10, 40, 50, 70)))
    rider, beside = ("person", PhotoObject(PEDESTRIAN, (20, 10, 40, 62))), ("person", PhotoObject(PEDESTRIAN, (60, 15, 75, 70)))
    car = ("car", PhotoObject(CAR, (100, 40, 160, 70)))
    joined = join_riders([rider, bicycle, beside, car])
    assert sorted((item.class_id, item.box) for item in joined) == [
        (CAR, (100, 40, 160, 70)),
        (PEDESTRIAN, (60, 15, 75, 70)),
        (TWO_WHEELER, (10, 10, 50, 70)),
    ]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"annotations": []}, "no box"),
        ({"images": []}, "no photograph"),
        ({"categories": [{"id": 1, "name": "cat"}]}, "no box"),
        ({"images": [{"id": 0, "file_name": "nowhere.jpg", "width": 128, "height": 96}]}, "1 images that are not there"),
        ({"images": [{"id": 0, "file_name": "000.png", "width": 1, "height": 1}]}, "side below 32"),
        ({"images": [{"id": 0, "file_name": "000.png", "width": 20_000, "height": 20_000}]}, "above 8192"),
        ({"images": [{"id": 0, "file_name": "000.png"}]}, "width"),
        ({"annotations": [{"image_id": 0, "category_id": 1, "bbox": [500, 500, 10, 10]}]}, "no box"),
        ({"annotations": [{"image_id": 0, "category_id": 1}]}, "no box"),
        ({"images": None}, "COCO"),
    ],
)
def test_label_files_that_are_no_use_are_refused_by_name(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    path = write_photos(tmp_path / "set", 2, **changes)
    with pytest.raises(InputError, match=match) as caught:
        open_photos(path)
    assert "labels.json" in str(caught.value)


def test_single_bad_boxes_are_counted_and_skipped(tmp_path: Path) -> None:
    marks = [
        {"image_id": 0, "category_id": 3, "bbox": [10, 10, 30, 30]},
        {"image_id": 0, "category_id": 3, "bbox": [120, 10, 30, 30]},  # cut at the border
        {"image_id": 0, "category_id": 3, "bbox": [200, 10, 30, 30]},
        {"image_id": 0, "category_id": 3, "bbox": [float("nan"), 10, 30, 30]},
        {"image_id": 0, "category_id": 3},
    ]
    found = open_photos(write_photos(tmp_path / "set", 1, annotations=marks))
    assert [item.box for item in found.photos[0].objects] == [(10, 10, 40, 40), (120, 10, 128, 40)]
    assert found.skipped == {"boxes outside their image or without area": 2, "labels without a box": 1}


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_any_kind_of_image_is_decoded_or_refused_by_name() -> None:
    colours = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8))
    for image, kind, options in (
        (colours.convert("CMYK"), "JPEG", {}),
        (colours.convert("L"), "PNG", {}),
        (colours.convert("P"), "GIF", {"save_all": True, "append_images": [colours.convert("P")]}),
        (colours, "WEBP", {}),
    ):
        assert decode(encoded(image, kind, **options), "x").shape == (64, 80, 3)
    whole = encoded(colours, "PNG")
    for data in (
        b"",
        b"GIF89a",
        whole[: len(whole) // 2],
        encoded(Image.new("RGB", (1, 1)), "PNG"),
        encoded(Image.new("1", (9000, 40)), "PNG"),
    ):
        with pytest.raises(InputError, match=r"photo\.png"):
            decode(data, "photo.png")
    assert to_linear(np.full((2, 2, 3), 255, np.uint8)) == pytest.approx(1)


def test_a_damaged_photograph_is_passed_over_and_all_damaged_ones_are_named(cutouts: Cutouts, tmp_path: Path) -> None:
    path = write_photos(tmp_path / "set", 3)
    for i in (0, 1):
        (path.parent / f"images/{i:03d}.png").write_bytes(b"damaged")
    found = open_photos(path)
    assert {make_photo_scene(seed, found, cutouts, 64, 48, 0.1).photo for seed in range(4)} == {"002.png"}
    (path.parent / "images/002.png").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"in a row can't be read.*\.png"):
        make_photo_scene(0, open_photos(path), cutouts, 64, 48, 0.1)


def test_damaged_photographs_are_counted_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = write_photos(tmp_path / "pictures", 12)
    for i in (2, 5, 7):
        (labels.parent / f"images/{i:03d}.png").write_bytes(b"damaged")
    photos = PhotosConfig(labels=str(labels), digest=open_photos(labels).digest, cutouts=12)
    config = DatasetConfig(recordings=20, seconds=0.05, width=32, height=32, photos=photos, split="train")
    write_dataset(tmp_path / "set", config, 1)
    cutting, scenes = (record.getMessage() for record in caplog.records)
    assert "skipped 3 photographs that can't be read for cut-outs; the first: " in cutting
    assert "002.png" in cutting
    used = [read_config(path).scene(tmp_path / "set") for path in sorted((tmp_path / "set/train").glob("*.h5"))]
    passed = set[str]().union(*(scene.unreadable for scene in used if isinstance(scene, PhotoScene)))
    assert passed <= {"002.png", "005.png", "007.png"}
    assert f"skipped {len(passed)} photographs that can't be read for scenes" in scenes


@pytest.mark.skipif(not REAL.exists(), reason="no photographs beside the project")
def test_real_photographs_become_labelled_events(tmp_path: Path) -> None:
    config = PhotosConfig(labels=str(REAL), digest=photo_set(str(REAL), ()).digest, cutouts=12)
    write_dataset(tmp_path / "set", DatasetConfig(recordings=2, seconds=0.3, width=96, height=80, photos=config, split="test"), 1)
    data = open_dataset(tmp_path / "set", split="test")
    assert data.classes == ("car", "pedestrian", "two-wheeler")
    for path in (tmp_path / "set/test").glob("*.h5"):
        with open_events(path) as reader:
            assert reader.end_us <= 300_000
