"""Names that files of a data set give to others stay inside it: nothing is read or written elsewhere."""

import json
from pathlib import Path

import pytest

from saccade.datasets.open import open_dataset
from saccade.datasets.prepare import prepare
from saccade.datasets.recording import Sampling
from saccade.evaluation.run.condition import Condition
from saccade.evaluation.run.store import path_of
from saccade.types import InputError
from tests.datasets.make import gen1_folder
from tests.make.attacks import hdf5


def test_of_a_prepared_data_set(tmp_path: Path) -> None:
    prepare(open_dataset(gen1_folder(tmp_path / "raw", ("a",))), tmp_path / "out", Sampling(bins=2), processes=1)
    path = tmp_path / "out/train/prepared.json"
    for name in ("../../secret", str(tmp_path / "secret")):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"recordings": [name]}))
        with pytest.raises(InputError, match=r"prepared\.json: names .*without \.\."):
            open_dataset(tmp_path / "out")


def test_of_lists_of_splits_and_of_coco(tmp_path: Path) -> None:
    hdf5(tmp_path / "a.h5").close()
    (tmp_path / "a.csv").write_text("t_us,x,y,w,h,class\n2,1,1,5,5,car\n")
    (tmp_path / "splits.json").write_text(json.dumps({"train": ["../a"]}))
    with pytest.raises(InputError, match=r"splits\.json: names .*without \.\."):
        open_dataset(tmp_path, "train")
    (tmp_path / "a.csv").unlink()
    content = {"images": [{"id": 0, "file_name": "../a.h5", "time_us": 2}], "annotations": [], "categories": [{"id": 0, "name": "car"}]}
    (tmp_path / "labels.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"labels\.json: names .*without \.\."):
        open_dataset(tmp_path, "all")


def test_of_answers_that_are_kept(tmp_path: Path) -> None:
    """`evaluate` wrote outside of --out."""
    with pytest.raises(InputError, match=r"without \.\."):
        path_of(tmp_path, Condition(rate_hz=20.0), "../../secret")
