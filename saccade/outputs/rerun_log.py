"""DETECTIONS + FRAMES -> .rrd for Rerun: pictures of the events, boxes over them, scores over time."""

from pathlib import Path

import numpy as np

from saccade.outputs.foxglove import png
from saccade.outputs.outputs import Look, Output, Run, open_to_write
from saccade.outputs.overlay import label, track_colour
from saccade.types import Detections, InputError

TIMELINE = "event_time"


class Rrd(Output):
    """Rerun writes in the background, a few times a second: of a process that was killed, the last moments are lost."""

    wants_frames = True

    def __init__(self, path: Path, run: Run) -> None:
        super().__init__(path, run)
        try:
            import rerun
        except ImportError as error:
            raise InputError(f'{path}: writing .rrd needs Rerun; `pip install "saccade[rerun]"`') from error
        open_to_write(self.part).close()
        self.rerun = rerun
        self.log = rerun.RecordingStream("saccade")
        self.log.save(str(self.part))

    def write(self, detections: Detections, look: Look | None = None) -> None:
        rerun = self.rerun
        self.log.set_time(TIMELINE, duration=np.timedelta64(detections.time_us, "us"))
        if look is not None:
            self.log.log("events", rerun.EncodedImage(contents=png(look()), media_type="image/png"))
        tracks = [-1] * len(detections) if detections.tracks is None else detections.tracks.tolist()
        boxes = rerun.Boxes2D(
            array=detections.boxes,
            array_format=rerun.Box2DFormat.XYXY,
            labels=[label(detections, row, self.run.classes) for row in range(len(detections))],
            colors=[track_colour(track) for track in tracks],
        )
        self.log.log("events/detections", boxes)

    def end(self) -> None:
        self.log.disconnect()
