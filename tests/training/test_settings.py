"""Settings are refused when they can't work; schedules are those of torch; presets are those of the paper."""

import pytest
import torch

from saccade.config import MemoryConfig
from saccade.config import presets as models
from saccade.samples import shipped_weights
from saccade.training.settings import MemoryChanges, TrainingSettings, average_decay, learning_rate, presets
from saccade.training.start import build_detector, choose_tf32
from saccade.types import InputError
from tests.training.make import toys


def test_the_rate_is_torchs_one_cycle() -> None:
    settings = TrainingSettings(steps=400, warmup=0.05)
    optimiser = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.highest_rate, total_steps=400, pct_start=0.05, anneal_strategy="linear", div_factor=20, final_div_factor=500
    )
    for step in range(400):
        assert learning_rate(step, settings) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-9)
        optimiser.step()
        if step < 399:
            cycle.step()


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_short_trainings_have_rates_too(steps: int) -> None:
    settings = TrainingSettings(steps=steps)
    assert all(0 < learning_rate(step, settings) <= settings.highest_rate for step in range(steps))


def test_rates_scale_with_the_root_of_the_batch() -> None:
    """The paper's 2e-4 at 8; for 1 Mpx 3.5e-4 on two GPUs of 12 clips each, of which the code's 2.45e-4 is one."""
    assert presets["gen1"]().highest_rate == 2e-4
    assert presets["1mpx"]().highest_rate == pytest.approx(3.5e-4, rel=0.02)
    assert TrainingSettings(batch=12).highest_rate == pytest.approx(2.45e-4, rel=0.001)
    assert presets["1mpx"]().batch == 24


def test_recipes_as_published() -> None:
    """The paper's batch of 12 for 1 Mpx with the rate that it prints; bilinear, its counts, odd pixels, no average."""
    gen1, one_mpx = presets["gen1-published"](), presets["1mpx-published"]()
    assert (one_mpx.batch, one_mpx.length, one_mpx.halved) == (12, 10, "published")
    assert one_mpx.highest_rate == pytest.approx(3.5e-4, rel=1e-9)
    assert (gen1.batch, gen1.length, gen1.highest_rate, gen1.halved) == (8, 21, 2e-4, "no")
    for recipe in (gen1, one_mpx):
        assert recipe.memory.of(MemoryConfig()).discretisation == "bilinear"
        assert (recipe.histogram, recipe.average, recipe.final_protocol) == ("published", 0.0, "prophesee")


def test_a_recipe_changes_what_it_names_of_the_memory() -> None:
    preset = MemoryConfig(timescales="clip", bandlimit=0.5)
    assert MemoryChanges().of(preset) == preset
    changed = MemoryChanges(blocks=4, step_limits=(0.01, 0.2), discretisation="bilinear", bandlimit=0.0).of(preset)
    assert changed == MemoryConfig(timescales="clip", blocks=4, step_limits=(0.01, 0.2), discretisation="bilinear", bandlimit=None)
    settings = TrainingSettings(model="s5-vit-nano", memory=MemoryChanges(blocks=4, timescales="published", step_limits=(0.02, 0.03)))
    memory = build_detector(settings, toys("train", 1)).backbone.stages[0].memory.memory
    assert len(memory.frequency.detach().round(decimals=3).unique()) == 4  # of 16 states: two pairs, four times
    assert memory.log_step.exp().min() >= 0.02
    assert memory.log_step.exp().max() < 0.03


def test_weights_to_start_from_keep_their_memory() -> None:
    with pytest.raises(InputError, match="keeps the memory"):
        build_detector(TrainingSettings(model="nano", memory=MemoryChanges(discretisation="bilinear")), toys("train", 1))


@pytest.mark.parametrize(
    "change",
    [{"blocks": -1}, {"step_limits": (0.1,)}, {"step_limits": (0.2, 0.1)}, {"step_limits": (0.0, 0.1)}, {"bandlimit": -1.0}],
)  # fmt: skip
def test_a_memory_that_cannot_be_is_refused(change: dict) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        MemoryChanges(**change)


@pytest.mark.parametrize(
    ("memory", "asked", "allowed"),
    [("s5", "auto", True), ("s4", "auto", False), ("s4d", "auto", False), ("s4", "on", True), ("gs5", "off", False)],
)
def test_tf32_on_a_gpu(memory: str, asked: str, allowed: bool) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    config = models[f"{memory}-vit-nano"]()
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = not allowed
        choose_tf32(TrainingSettings(tf32=asked), config, torch.device("cpu"))
        assert matmul.allow_tf32 is not allowed
        choose_tf32(TrainingSettings(tf32=asked), config, torch.device("cuda"))
        assert matmul.allow_tf32 is cudnn.allow_tf32 is allowed
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def test_the_average_follows_quickly_at_first() -> None:
    settings = TrainingSettings(average=0.999)
    decays = [average_decay(step, settings) for step in range(20_000)]
    assert decays[0] <= 0.1
    assert decays == sorted(decays)
    assert decays[-1] == 0.999


@pytest.mark.parametrize("name", presets)
def test_presets_name_a_model(name: str) -> None:
    assert presets[name]().model in {*models, *shipped_weights()}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0}, {"batch": 0}, {"length": 0}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}, {"warmup": 1.0},
        {"average": 1.0}, {"batch": 6, "accumulation": 4}, {"end_division": 0.0}, {"gradient_clip": -1.0}, {"checkpoint_every": 0},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(change: dict) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        TrainingSettings(**change)
