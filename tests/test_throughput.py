"""The benchmark of whole trainings: what it counts, in which turns, and the section it writes. No speed is asserted."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `benchmarks` is no installed package

from benchmarks import report, throughput  # noqa: E402


@pytest.fixture
def setting():
    source, target = throughput.domains(None, "lenet", 24)
    return throughput.Setting(source, target, "lenet", 4, "32-true", torch.device("cpu"), 0, warm_up=1, steps=2)


def test_rates_are_images_over_seconds_and_the_order_turns(setting, monkeypatch):
    calls = []
    seconds = iter([2.0, 1.0, 4.0, 1.0, 4.0, 2.0])  # ckb, without, plain; then without, plain, ckb

    def loop(name):
        calls.append(name)
        return next(seconds)

    monkeypatch.setattr(throughput, "library_loop", lambda setting, method: loop(method))
    monkeypatch.setattr(throughput, "plain_loop", lambda setting: loop("plain"))
    row = throughput.measure(setting, rounds=2)
    assert calls == ["ckb", "entropy", "plain", "entropy", "plain", "ckb"]
    images = 2 * 4 * 2  # both domains, batch size, steps that count
    assert row["images_per_second"] == {"ckb": images / 2, "without": images / 1, "plain": images / 4}
    assert (row["ratio"], row["over_plain"]) == (2.0, 2.0)


def test_all_three_loops_train_and_time_the_steps_that_count(setting, monkeypatch):
    noted = []

    class Counting(throughput.Clock):
        def note(self):
            noted.append(sum(steps))
            super().note()

    steps = []
    step = torch.optim.SGD.step
    monkeypatch.setattr(torch.optim.SGD, "step", lambda *args, **options: (step(*args, **options), steps.append(1))[0])
    monkeypatch.setattr(throughput, "Clock", Counting)
    row = throughput.measure(setting, rounds=1)
    assert all(rate > 0 for rate in row["images_per_second"].values())
    # Each loop makes three steps; the clock runs from the end of the first to the end of the third.
    assert noted == [1, 3, 4, 6, 7, 9]


def test_windows_of_the_plain_loop_are_those_of_the_recipe(setting):
    recipe = setting.recipe
    _, inputs = setting.build(recipe)
    grey = replace(setting.source, samples=throughput.TensorSamples(torch.full((24, 1, 32, 32), 51, dtype=torch.uint8)))
    image, label = throughput._Images(grey, recipe, inputs)[3]
    assert label == 3
    ours = inputs.training(grey.samples.take(torch.tensor([3])), torch.Generator().manual_seed(0))[0]
    assert image.shape == ours.shape == (1, 28, 28)
    assert torch.allclose(image, ours, atol=1e-6)  # one grey everywhere, whatever the window: normalised alike


def test_the_page_has_what_was_measured():
    row = {"network": "resnet50", "images": "here and there", "batch_size": 32, "precision": "bf16-mixed"}
    row |= {
        "images_per_second": {"ckb": 1000.4, "without": 1040.2, "plain": 800.0},
        "ratio": 1.0398,
        "over_plain": 1.25,
    }
    manifest = {"command": "python -m benchmarks.throughput", "hardware": {"accelerator": "a GPU"}, "results": [row]}
    text = report.page({}, {"throughput": [manifest]})
    assert "| a GPU | resnet50 | here and there | 32 | bf16-mixed | 1000 | 1040 | 1.040 | 800 | 1.25 |" in text
    assert "## Training" not in report.page({}, {})


def test_the_page_has_the_replayed_steps():
    row = {"network": "head", "batch_size": 64, "method": "ckb", "launched_ms": 4.7, "replayed_ms": 1.4, "ratio": 3.357}
    manifest = {"command": "python -m benchmarks.step_graphs", "hardware": {"accelerator": "a GPU"}, "results": [row]}
    text = report.page({}, {"step-graphs": [manifest]})
    assert "| a GPU | head | 64 | ckb | 4.70 | 1.40 | 3.4 |" in text
    assert "Measured by `python -m benchmarks.step_graphs`." in text
    assert "CUDA graphs\n" not in report.page({}, {})
