"""Classes match by name: detectors are scored on, and go on with, data sets of fewer, more or differently ordered classes."""

import logging
import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.config import ONE_MPX_CLASSES
from saccade.datasets.classes import in_common, places_of, renumbered, with_class_map
from saccade.datasets.recording import Dataset
from saccade.datasets.rules import DSEC_CLASSES
from saccade.evaluation.evaluate import evaluate
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.validate import validate
from saccade.training.start import build_detector
from saccade.types import Detections, InputError
from saccade.weights.load import load_detector, save_detector
from tests.evaluation.squares import squares, untrained
from tests.training.make import tiny_settings, toys

KNOWN = ("car", "pedestrian", "two-wheeler")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Of classes bright and dark, each in some recordings."""
    return squares(tmp_path_factory.mktemp("squares"), seconds=0.4)


def with_classes(*names: str):
    detector = untrained()
    detector.config = replace(detector.config, classes=names)
    return detector


@pytest.mark.parametrize(
    ("names", "among", "places"),
    [
        (KNOWN, KNOWN, (0, 1, 2)),
        (("car",), KNOWN, (0,)),
        (("two-wheeler", "tram", "car"), KNOWN, (2, -1, 0)),
        (("Car", "PEDESTRIAN"), KNOWN, (0, 1)),
        (("car", "Car"), ("Car", "car"), (1, 0)),  # where both spellings are, capitals matter
        (("CAR",), ("Car", "car"), (0,)),
    ],
)
def test_names_find_their_places(names: tuple[str, ...], among: tuple[str, ...], places: tuple[int, ...]) -> None:
    assert places_of(names, among) == places


def test_answers_get_the_classes_of_the_data_set() -> None:
    found = Detections(np.zeros((3, 4), np.float32), np.array([0.9, 0.8, 0.7], np.float32), np.array([0, 1, 2]), 5)
    (kept,) = renumbered([found], (1, -1, 0))
    assert (kept.classes.tolist(), kept.time_us) == ([1, 0], 5)
    np.testing.assert_array_equal(kept.scores, np.array([0.9, 0.7], np.float32))
    assert renumbered([found], (0, 1, 2)) == [found]


def test_the_order_of_classes_changes_no_score(data: Dataset) -> None:
    """Nor do their capitals: the detector is the same, its names and the data set's are exchanged alike."""
    scores = []
    for names in permutations(("bright", "dark")):
        swapped = with_classes(*names)
        for scale in swapped.head.scales:
            with torch.no_grad():
                scale.classes.weight.copy_(scale.classes.weight[[("bright", "dark").index(name) for name in names]])
                scale.classes.bias.copy_(scale.classes.bias[[("bright", "dark").index(name) for name in names]])
        scores.append(evaluate(swapped, data, [Condition()]).results[0].scores)
        spelled = evaluate(swapped, replace(data, classes=("Bright", "dark")), [Condition()]).results[0].scores
        assert repr(spelled).replace("Bright", "bright") == repr(scores[-1])
    assert repr(scores[0]) == repr(scores[1])
    assert set(scores[0].classes) == {"bright", "dark"}


def test_what_only_one_of_them_knows_is_left_out_and_said_once(data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    """A class is scored alike, whatever else the detector finds and the data set labels."""
    whole = evaluate(with_classes("bright", "dark"), data, [Condition()]).results[0].scores
    caplog.clear()
    with caplog.at_level(logging.WARNING, "saccade"):
        found = evaluate(with_classes("bright", "tram"), data, [Condition(), Condition(rate_hz=40)])
    unfamiliar, *told = sorted((record.getMessage() for record in caplog.records), key=lambda text: not text.startswith("a sensor of"))
    assert "64 x 32 is much smaller than the 304 x 240 that tiny knows" in unfamiliar
    assert told == [
        "tiny also finds tram, which squares doesn't label: left out",
        "squares also labels dark, which tiny doesn't know: not scored",
    ]
    assert found.classes == ("bright",)
    assert found.results[0].scores.classes == {"bright": whole.classes["bright"]}
    assert found.results[0].scores.mAP == whole.classes["bright"]
    assert 0 < found.results[0].scores.labels < whole.labels
    assert found.results[0].scores.frames == whole.frames
    with pytest.raises(InputError, match="tiny finds bus, tram, but squares has labels of bright, dark"):
        evaluate(with_classes("bus", "tram"), data, [Condition()])


def test_classes_of_the_data_set_are_scored_under_the_names_of_the_weights(data: Dataset) -> None:
    """Two that become one are as if they had been labelled so; what has no name is neither right nor wrong to find."""
    thing = with_classes("thing", "dark")
    labelled_so = replace(data, classes=("thing", "unknown"))
    mapped = with_class_map(data, {"Bright": "thing", "dark": "thing"})
    assert mapped.classes == ("thing",)
    assert [len(one.labels) for one in mapped.recordings] == [len(one.labels) for one in data.recordings]
    one, both = (evaluate(thing, which, [Condition()]).results[0].scores for which in (labelled_so, mapped))
    assert both.labels == evaluate(with_classes("bright", "dark"), data, [Condition()]).results[0].scores.labels
    assert 0 < one.labels < both.labels
    ignoring = with_class_map(data, {"bright": "thing", "dark": ""})
    assert ignoring.classes == ("thing",)
    hidden = evaluate(thing, ignoring, [Condition()]).results[0].scores
    assert hidden.labels == one.labels
    assert hidden.mAP >= one.mAP  # boxes on dark squares aren't wrong any more
    for recording, before in zip(pickle.loads(pickle.dumps(ignoring)).recordings, data.recordings, strict=True):
        assert recording.truth.ignored is not None
        assert len(recording.labels) + len(recording.truth.ignored) == len(before.labels)


def test_weights_of_one_mpx_are_scored_on_dsec() -> None:
    dsec = Dataset("dsec", "test", DSEC_CLASSES, ())
    mapped = with_class_map(dsec, {"bicycle": "two-wheeler", "motorcycle": "two-wheeler", "rider": ""})
    assert mapped.classes == ("pedestrian", "car", "bus", "truck", "two-wheeler", "train")
    common = in_common(ONE_MPX_CLASSES, mapped, "1mpx")
    assert common.dataset.classes == ("pedestrian", "car", "two-wheeler")
    assert common.places == (0, 2, 1)  # of pedestrian, two-wheeler, car


@pytest.mark.parametrize(("names", "said"), [({"tram": "dark"}, "no class 'tram'"), ({"bright": "", "dark": ""}, "is left")])
def test_a_class_map_that_fits_nothing_is_refused(data: Dataset, names: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        with_class_map(data, names)


def test_processes_get_the_labels_that_count(data: Dataset) -> None:
    common = in_common(("dark",), data, "it")
    for recording in pickle.loads(pickle.dumps(common.dataset)).recordings:
        assert set(recording.labels.classes.tolist()) <= {0}
        assert recording.name.startswith("part/")
        assert len(recording.instants_us)


def outputs(tensors: dict[str, torch.Tensor]) -> Iterator[torch.Tensor]:
    return (value for name, value in tensors.items() if name.startswith("head.") and ".classes." in name)


@pytest.mark.parametrize("names", [("car",), ("two-wheeler", "car", "pedestrian"), ("bus", "pedestrian"), ("Car", *KNOWN[1:], "tram")])
def test_known_classes_keep_their_outputs(tmp_path: Path, names: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    from saccade.model.detector import Detector

    torch.manual_seed(3)
    known = Detector(replace(untrained().config, classes=KNOWN))
    for value in outputs(known.state_dict()):
        value.normal_()
    save_detector(known, tmp_path / "known.safetensors")
    settings, dataset = tiny_settings(model=str(tmp_path / "known.safetensors")), replace(toys(), classes=names)
    with caplog.at_level(logging.WARNING, "saccade"):
        built = build_detector(settings, dataset)
    assert built.config.classes == names
    for old, new in zip(outputs(known.state_dict()), outputs(built.state_dict()), strict=True):
        assert len(new) == len(names)
        for row, place in enumerate(places_of(names, KNOWN)):
            assert torch.equal(new[row], old[place]) == (place >= 0)
    (told,) = [record.getMessage() for record in caplog.records]
    assert all(name in told for name in names)
    same = {name: value for name, value in known.state_dict().items() if ".classes." not in name}
    assert all(torch.equal(value, built.state_dict()[name]) for name, value in same.items())


def test_a_training_is_validated_on_other_classes(data: Dataset) -> None:
    """Those of the two splits needn't be the same: a small val may lack one."""
    whole = validate(with_classes("bright", "dark"), data, threshold=0.01)
    part = validate(with_classes("bright", "tram"), data, threshold=0.01)
    assert part.classes == {"bright": whole.classes["bright"]}


def test_shipped_weights_are_scored_on_a_data_set_of_cars_only() -> None:
    assert in_common(load_detector("nano").config.classes, replace(toys(), classes=("Car",)), "nano").places == (0, -1, -1)
