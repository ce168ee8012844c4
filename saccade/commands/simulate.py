"""SCENES OR A VIDEO -> EVENTS: `saccade simulate`."""

import re
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from saccade.cluster import LOCAL, check_place
from saccade.commands.options import On, check_processes
from saccade.events.write import check_target, write_events
from saccade.machine import check_extra
from saccade.simulate.cutouts import PhotosConfig, photo_set
from saccade.simulate.dataset import DatasetConfig, write_dataset
from saccade.simulate.photo_scene import DRIVES, STANDS
from saccade.simulate.sensor import SensorConfig
from saccade.simulate.video import VideoSource
from saccade.types import InputError

FolderOrVideo = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="DIR|VIDEO", help="Folder to write a data set to, or a video to turn into events."),
]
EventsTarget = Annotated[
    Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="OUT", help="Of a video: the recording to write, .h5, .dat, .npz or .csv.")
]
AS_BUILT = SensorConfig()


def simulate(
    source: FolderOrVideo,
    out: EventsTarget = None,
    *,
    photos: Path | None = None,
    images: tuple[Path, ...] = (),
    cutouts: int = 2000,
    standing: float = STANDS,
    driving: float = DRIVES,
    split: Literal["train", "val", "test"] | None = None,
    recordings: int = 400,
    seconds: float | None = None,
    size: str | None = None,
    seed: int = 0,
    processes: int = 0,
    on: On = LOCAL,
    overwrite: bool = False,
    sensor: SensorConfig = AS_BUILT,
) -> None:
    """Simulate an event camera: a data set with exact boxes of drawn streets (`saccade simulate DIR`) or of photographs
    (`... DIR --photos LABELS.json`), or a video's events (`... VIDEO OUT`).

    A data set goes to DIR/train, DIR/val and DIR/test (80, 10, 10 %): SEED.h5 (events), SEED_labels.npz (boxes at 200 Hz with track,
    visible fraction, speed, time since it last moved), SEED.json (from which the boxes at any microsecond follow). The same command goes
    on where it was interrupted. The same seed gives the same bytes.

    With photographs, the camera moves over one of them, or stands, while objects cut out of others move before it; every recording has its
    own sensor (unless a --sensor option is given), and no photograph is used for two of the splits.

    Args:
        photos: COCO labels (.json or .json.xz) of photographs with boxes, or masks, of person, bicycle, motorcycle, car, bus, truck.
        images: Folders or zips that hold the photographs; those beside the labels if not given.
        cutouts: Number of objects and distractors to cut out of the photographs; kept in DIR/cutouts.npz.
        standing: Of photographs: share of the recordings whose camera doesn't move.
        driving: Of photographs: share of the moving cameras that move as in a car, through streets and behind cars.
        split: Put all recordings into this split instead of 80, 10 and 10 %.
        recordings: Number of recordings of the data set.
        seconds: Length of each recording, 8 if not given (4 with photographs); of a video, how much to read, all if not given.
        size: Width x height: of the sensor, 160x128 if not given; of a video, what to scale it to, its own size if not given.
        seed: Random seed: another seed, another data set.
        processes: Number of processes; 0 = one per core.
        on: Where it is computed: local, or a Ray cluster, whose nodes see DIR under the same name; the same bytes.
        overwrite: Replace files that exist.
    """
    width, height = size_of(size) if size is not None else (None, None)
    if seconds is not None and not 0 < seconds < float("inf"):
        raise InputError(f"--seconds {seconds}: expected a number above 0")
    if out is None:
        if source.suffix and source.is_file():
            raise InputError(f"{source}: is a file; for the events of a video, name the file to write: saccade simulate {source} out.h5")
        check_processes(processes)
        check_place(on)
        config = DatasetConfig(
            recordings=recordings, seconds=seconds or (8.0 if photos is None else 4.0), width=width or 160, height=height or 128, seed=seed,
            sensor=sensor, photos=_photos(photos, images, cutouts), split=split, standing=standing, driving=driving,
        )  # fmt: skip
        _dataset(source, config, processes or None, on)
    elif photos is not None:
        raise InputError(f"--photos makes a data set; expected one folder to write to, got {source} and {out}")
    else:
        check_target(out, source, overwrite)
        _video(VideoSource(source, width=width, height=height, seconds=seconds, sensor=sensor, seed=seed), out, overwrite)


def size_of(text: str) -> tuple[int, int]:
    """Of an option such as 160x128."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text.strip().lower())
    if not match or not int(match[1]) or not int(match[2]):
        raise InputError(f"--size {text}: expected width x height in pixels, e.g. 160x128")
    return int(match[1]), int(match[2])


def _photos(labels: Path | None, images: tuple[Path, ...], cutouts: int) -> PhotosConfig | None:
    if labels is None:
        if images:
            raise InputError("--images names the photographs of --photos LABELS.json; give that, too")
        return None
    check_extra("--photos", "cv2", "photos")
    places = tuple(str(path.resolve()) for path in images)
    found = photo_set(str(labels.resolve()), places)
    for reason, count in found.skipped.items():
        print(f"{labels}: skipped {count:,} {reason}")
    return PhotosConfig(labels=str(labels.resolve()), images=places, digest=found.digest, cutouts=cutouts)


def _dataset(folder: Path, config: DatasetConfig, processes: int | None, on: str) -> None:
    with tqdm(total=config.recordings, desc="simulating", unit=" recordings", leave=False, disable=None) as bar:
        paths = write_dataset(
            folder,
            config,
            processes,
            lambda path, seconds: bar.update(),
            lambda done, wanted: bar.set_postfix_str(f"{done} of {wanted} cut-outs"),
            on,
        )
    total = sum(path.stat().st_size for path in paths)
    print(f"{folder}: {len(paths)} recordings of {config.seconds:g} s, {config.width} x {config.height}, {total / 1e6:.1f} MB of events")


def _video(video: VideoSource, out: Path, overwrite: bool) -> None:
    with video, tqdm(total=video.frames, desc="simulating", unit=" frames", leave=False, disable=None) as bar:
        count = write_events(
            video, out, width=video.width, height=video.height, source_path=video.path, overwrite=overwrite,
            progress=lambda events: bar.update(video.position - bar.n),
        )  # fmt: skip
    print(f"{out}: {count:,} events, {video.width} x {video.height}, {out.stat().st_size / 1e6:.1f} MB")
