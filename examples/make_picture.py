"""Make docs/detections.webp, the README's picture: python examples/make_picture.py detections.mp4

The video is one of `saccade detect nano RECORDING --rate 200 --slow 4 --out detections.mp4`, or the demo's.
"""

import sys
from fractions import Fraction
from pathlib import Path

import av
from PIL import Image

OUT = Path(__file__).parents[1] / "docs" / "detections.webp"
SHOWN_FPS = 20
SECONDS = 8


def main(video: str, start_s: float = 0.0) -> None:
    pictures: list[Image.Image] = []
    with av.open(video) as container:
        for frame in container.decode(video=0):
            time_s = float((frame.pts or 0) * (frame.time_base or Fraction(1))) - start_s
            if time_s >= len(pictures) / SHOWN_FPS and len(pictures) < SECONDS * SHOWN_FPS:
                pictures.append(frame.to_image())
    first, *rest = pictures
    OUT.parent.mkdir(exist_ok=True)
    first.save(OUT, save_all=True, append_images=rest, duration=round(1000 / SHOWN_FPS), loop=0, quality=50, method=4)
    print(f"{OUT}: {len(pictures)} pictures, {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(sys.argv[1], *(float(text) for text in sys.argv[2:]))
