"""WEIGHTS -> THEIR MOVING AVERAGE, which scores better than the last step's."""

import copy

import torch

from saccade.model.detector import Detector


class Average:
    """A second detector whose weights and batch statistics follow those of the first."""

    def __init__(self, detector: Detector) -> None:
        self.detector = copy.deepcopy(detector).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, detector: Detector, decay: float) -> None:
        for mine, new in zip(self.detector.state_dict().values(), detector.state_dict().values(), strict=True):
            if mine.is_floating_point():
                mine.lerp_(new.detach(), 1 - decay)
            else:
                mine.copy_(new)
