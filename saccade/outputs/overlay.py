"""PICTURES OF EVENTS + DETECTIONS -> FRAMES OF A VIDEO: boxes with labels, the recent path of each track, a time axis."""

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

from saccade.outputs.outputs import RunInfo
from saccade.outputs.picture import PAPER, UNTRACKED, BoxMark, Colour, LargePicture, Picture, draw_boxes, enlarge, font, label, track_colour
from saccade.types import Detections

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

INK: Colour = (52, 54, 60)
FAINT: Colour = (168, 170, 174)
STRIP: Colour = (241, 241, 237)
STRIP_HEIGHT = 52
AXIS = 30  # of the strip's rows
MARGIN = 16
TRAIL_US = 500_000
SHORTEST_AXIS_US = 10_000_000  # of a live source, whose end nobody knows
UNIX_US = 10**14  # later times are Unix time: shown as seconds since the start
TICK_STEPS = tuple(step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5))  # seconds


class Overlay:
    """Draws the frames of one run, in order: it remembers where tracks have been."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run
        self.trails: defaultdict[int, deque[tuple[int, float, float]]] = defaultdict(deque)
        self.end_us = run.start_us + SHORTEST_AXIS_US if run.end_us is None else run.end_us  # of the axis; grows with a live source
        self.strip: LargePicture | None = None  # what is the same in all frames: the time axis

    def draw(self, picture: Picture, detections: Detections) -> LargePicture:
        """PICTURE in the sensor's size, enlarged by a whole factor, with boxes and trails over it and the time axis below."""
        from PIL import Image, ImageDraw

        large = enlarge(picture)
        scale = large.shape[0] / picture.shape[0]
        height, width = large.shape[:2]
        strip_height = STRIP_HEIGHT + (height + STRIP_HEIGHT) % 2  # video needs even sides
        grows = self.run.end_us is None and detections.time_us > self.end_us
        self.end_us = detections.time_us if grows else self.end_us
        if grows or self.strip is None or self.strip.shape != (strip_height, width + width % 2, 3):
            self.strip = self._strip(strip_height, width)
        canvas = np.empty((height + strip_height, width + width % 2, 3), np.uint8)
        canvas[:height, :width] = large
        canvas[:height, width:] = PAPER
        canvas[height:] = self.strip
        image = Image.fromarray(canvas)
        draw = ImageDraw.Draw(image)
        self.remember(detections)
        self._trails(draw, detections, scale)
        self._boxes(draw, detections, scale, width, height)
        self._now(draw, detections.time_us, width, height)
        return np.asarray(image)

    def remember(self, detections: Detections) -> None:
        """Extend the trails; also for frames that aren't drawn."""
        ids = () if detections.tracks is None else detections.tracks.tolist()
        for box, track in zip(detections.boxes.tolist(), ids, strict=False):
            if track >= 0:
                self.trails[track].append((detections.time_us, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
        for track in list(self.trails):
            trail = self.trails[track]
            while trail and trail[0][0] < detections.time_us - TRAIL_US:
                trail.popleft()
            if not trail:
                del self.trails[track]

    def _trails(self, draw: "ImageDraw", detections: Detections, scale: float) -> None:
        shown = set() if detections.tracks is None else set(detections.tracks.tolist())
        for track, trail in self.trails.items():
            if track in shown and len(trail) > 1:
                draw.line([(x * scale, y * scale) for _, x, y in trail], fill=track_colour(track), width=2, joint="curve")

    def _boxes(self, draw: "ImageDraw", detections: Detections, scale: float, width: int, height: int) -> None:
        """Tracked ones first, then by score."""
        tracks = np.full(len(detections), -1) if detections.tracks is None else detections.tracks
        order = np.lexsort((-detections.scores, tracks < 0)).tolist()
        boxes, ids = detections.boxes.tolist(), tracks.tolist()
        marks = [
            BoxMark(boxes[row], label(detections, row, self.run.classes), track_colour(ids[row]), 2 if ids[row] >= 0 else 1)
            for row in order
        ]
        draw_boxes(draw, marks, scale, (width, height))

    def _strip(self, height: int, width: int) -> LargePicture:
        """The time axis of the run, below the picture."""
        from PIL import Image, ImageDraw

        run, (left, right, line) = self.run, (MARGIN, width - MARGIN, AXIS)
        start_us, end_us = run.start_us - self.zero_us, self.end_us - self.zero_us
        image = Image.new("RGB", (width + width % 2, height), STRIP)
        draw, small = ImageDraw.Draw(image), font(10)
        draw.line((left, line, right, line), fill=FAINT, width=3)
        step_s = next((step for step in TICK_STEPS if max(end_us - start_us, 1) / 1e6 / step <= (right - left) / 70), TICK_STEPS[-1])
        digits = max(0, int(np.ceil(-np.log10(step_s) - 1e-9)))
        for number in range(int(np.ceil(start_us / 1e6 / step_s)), int(end_us / 1e6 / step_s) + 1):
            x = self._place(number * step_s * 1e6, width)
            draw.line((x, line - 3, x, line + 4), fill=FAINT)
            text = f"{number * step_s:.{digits}f}"
            half = small.getlength(text) / 2
            draw.text((min(max(x, left + half), right - half), line + 13), text, font=small, fill=UNTRACKED, anchor="mm")
        speed = f"{run.rate_hz:g} Hz" + (f"  ·  {run.slow:g}× slower" if run.slow != 1 else "")
        draw.text((right, 13), speed, font=font(12), fill=INK, anchor="rm")
        return np.array(image)

    def _now(self, draw: "ImageDraw", time_us: int, width: int, top: int) -> None:
        """Where this frame is on the axis."""
        line, now = top + AXIS, self._place(time_us - self.zero_us, width)
        draw.line((0, top, width, top), fill=FAINT)  # over the edges of boxes
        draw.line((MARGIN, line, now, line), fill=INK, width=3)
        draw.ellipse((now - 5, line - 5, now + 5, line + 5), fill=INK, outline=STRIP, width=1)
        text = f"{'+' if self.zero_us else ''}{(time_us - self.zero_us) / 1e6:.3f} s"
        draw.text((MARGIN, top + 13), text, font=font(13, bold=True), fill=INK, anchor="lm")

    @property
    def zero_us(self) -> int:
        """The time that the axis counts from."""
        return self.run.start_us if self.run.start_us > UNIX_US else 0

    def _place(self, time_us: float, width: int) -> float:
        """x of a time that is counted from `zero_us`."""
        start_us = self.run.start_us - self.zero_us
        passed = (time_us - start_us) / max(self.end_us - self.run.start_us, 1)
        return MARGIN + (width - 2 * MARGIN) * min(max(passed, 0), 1)
