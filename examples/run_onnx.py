"""Run a file of `saccade export` with onnxruntime and numpy alone: `python run_onnx.py detector.onnx frames.npy`.

Frames (n, channels, height, width), uint8: events counted per polarity (negative first), time bin and pixel, at most 10 each.
"""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
config, states = json.loads(about["config"]), json.loads(about["states"])
height, width = map(int, about["size"].split("x"))
state = {name: np.zeros((1, *shape), np.float32) for name, shape in states.items()}
dt = np.array([1.0], np.float32)  # since the frame before, in windows of the training: 0.1 for ten times its rate; may change any time

for number, frame in enumerate(np.load(sys.argv[2])):
    frame = np.pad(frame, ((0, 0), (0, height - frame.shape[1]), (0, width - frame.shape[2])))
    rows, *after = session.run(None, {"frames": frame[None], "dt": dt, **state})
    state = dict(zip(state, after, strict=True))
    x, y, wide, high, objectness = rows[0, :, :5].T  # of every cell: centre and sides in pixels
    kind = rows[0, :, 5:].argmax(1)
    score = objectness * rows[0, :, 5:].max(1)
    for cell in np.argsort(-score)[:3]:  # the best three; a non-maximum suppression would come here
        left, top = x[cell] - wide[cell] / 2, y[cell] - high[cell] / 2
        print(f"{number} {config['classes'][kind[cell]]} {score[cell]:.4f} {left:.2f} {top:.2f} {wide[cell]:.2f} {high[cell]:.2f}")
