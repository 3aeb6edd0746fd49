"""The monitor logs what the definitions say of the module's outputs, and the training does not notice it."""

from __future__ import annotations

import builtins
import importlib
import json
import subprocess
import sys

import lightning as L
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bures
from bures.integrations.lightning import ShiftMonitor, ShiftReading, read_shift

KEYS = {"shift/ckb", "shift/label_shift", "shift/source_accuracy", "shift/target_accuracy_estimate"}


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 3)

    def outputs(self, batch):
        z = self.body(batch[0])
        return z, self.head(z)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.outputs(batch)[1], batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


@pytest.fixture(scope="module")
def data():
    return tuple(
        torch.from_numpy(part).float() if part.dtype.kind == "f" else torch.from_numpy(part)
        for part in bures.data.drifting_class(120, drift=1.0)
    )


@pytest.fixture
def loaders(data):
    xs, ys, xt, yt = data
    return (
        DataLoader(TensorDataset(xs, ys), batch_size=30, shuffle=True),
        DataLoader(TensorDataset(xt, yt), batch_size=50, shuffle=True),
    )


def trained(source, *callbacks, **options):
    module = Classifier()
    trainer = L.Trainer(
        **{"max_epochs": 3, "logger": False, "enable_checkpointing": False, **options},
        accelerator="cpu", callbacks=list(callbacks), enable_progress_bar=False, enable_model_summary=False,
        log_every_n_steps=1,
    )  # fmt: skip
    torch.manual_seed(1)
    trainer.fit(module, source)
    return trainer, module


def test_the_values_are_those_of_the_modules_outputs(data, loaders):
    source, target = loaders
    monitor = ShiftMonitor(
        Classifier.outputs, source, target, target_labels=lambda batch: batch[1], class_names="abc", eps=0.1
    )
    trainer, module = trained(source, monitor)
    assert [row["epoch"] for row in monitor.history] == [0, 1, 2]
    last = monitor.history[-1]
    assert set(last) == KEYS | {"epoch", "shift/target_accuracy", "shift/prior/a", "shift/prior/b", "shift/prior/c"}
    for name in KEYS:
        assert float(trainer.callback_metrics[name]) == pytest.approx(last[name], rel=1e-6)

    xs, ys, xt, yt = data
    module.eval()
    with torch.no_grad():
        (z_s, logits_s), (z_t, logits_t) = module.outputs([xs]), module.outputs([xt])
    expected = bures.ckb(z_s.double(), ys, z_t.double(), logits_t.double().softmax(dim=1), eps=0.1)
    assert last["shift/ckb"] == pytest.approx(float(expected), rel=1e-3)  # pseudo-labels have a floor of 1e-6
    assert last["shift/source_accuracy"] == pytest.approx(float((logits_s.argmax(1) == ys).double().mean()))
    assert last["shift/target_accuracy"] == pytest.approx(float((logits_t.argmax(1) == yt).double().mean()))
    priors = np.array([last[f"shift/prior/{name}"] for name in "abc"])
    assert priors.sum() == pytest.approx(1)
    counted = np.bincount(ys, minlength=3) / len(ys)
    assert last["shift/label_shift"] == pytest.approx(np.abs(priors - counted).sum() / 2)


def test_the_training_does_not_notice(loaders):
    source, target = loaders
    _, alone = trained(source)
    _, watched = trained(source, ShiftMonitor(Classifier.outputs, source, target))
    for name, value in alone.state_dict().items():
        assert torch.equal(watched.state_dict()[name], value), name
    assert watched.body[3].training


def test_it_looks_every_few_epochs_and_reads_no_more_than_it_needs(loaders):
    source, target = loaders
    read = []

    def outputs(module, batch):
        read.append(len(batch[0]))
        return module.outputs(batch)

    monitor = ShiftMonitor(outputs, source, target, every=2, max_samples=40, prefix="gap/")
    trained(source, monitor, max_epochs=5)
    assert [row["epoch"] for row in monitor.history] == [1, 3]
    assert read == [30, 30, 50] * 2
    assert "gap/ckb" in monitor.history[0]


def test_label_shift_is_recovered_where_predictions_err_alike():
    # Closed form: class frequencies (1/2, 1/2) and (1/5, 4/5); each class is taken for the other in 1 of 10 cases.
    y_s = torch.tensor([0, 1] * 500)
    y_t = torch.tensor([0] * 200 + [1] * 800)

    def logits(y):
        wrong = torch.arange(len(y)) % 10 == 0
        wrong[y == 1] = torch.arange(int((y == 1).sum())) % 10 == 0
        wrong[y == 0] = torch.arange(int((y == 0).sum())) % 10 == 0
        return 4.0 * nn.functional.one_hot(torch.where(wrong, 1 - y, y), 2)

    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1000, 3, generator=generator)
    reading = read_shift(z, logits(y_s), y_s, z, logits(y_t), y_t)
    np.testing.assert_allclose(reading.priors, [0.2, 0.8], atol=2e-3)
    assert reading.label_shift == pytest.approx(0.3, abs=2e-3)
    assert (reading.source_accuracy, reading.target_accuracy) == (0.9, 0.9)


def test_accuracy_is_estimated_from_the_share_above_a_confidence():
    # The source errs below a confidence of 0.7; of the target 1 in 4 lies there.
    y_s, z = torch.zeros(10, dtype=torch.long), torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    confidence_s = torch.tensor([0.55, 0.6, 0.65] + [0.8] * 7, dtype=torch.float64)
    found = torch.tensor([1] * 3 + [0] * 7)
    p_s = torch.where(nn.functional.one_hot(found, 2) > 0, confidence_s[:, None], 1 - confidence_s[:, None])
    confidence_t = torch.tensor([0.6, 0.9, 0.85, 0.95], dtype=torch.float64)
    p_t = torch.stack([confidence_t, 1 - confidence_t], dim=1)
    reading = read_shift(z, p_s.log(), y_s, z[:4], p_t.log())
    assert (reading.source_accuracy, reading.target_accuracy_estimate) == (0.7, 0.75)
    assert reading.target_accuracy is None
    # A source that is all wrong, or all right.
    hopeless = read_shift(z, p_s.log(), 1 - found, z[:4], p_t.log())
    assert (hopeless.source_accuracy, hopeless.target_accuracy_estimate) == (0.0, 0.0)
    assert read_shift(z, p_s.log(), found, z[:4], p_t.log()).target_accuracy_estimate == 1.0


def test_the_history_goes_through_checkpoints(loaders, tmp_path):
    source, target = loaders
    monitors = [ShiftMonitor(Classifier.outputs, source, target, prefix=prefix) for prefix in ("a/", "b/")]
    trainer, _ = trained(source, *monitors, max_epochs=2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = [ShiftMonitor(Classifier.outputs, source, target, prefix=prefix) for prefix in ("a/", "b/")]
    resumed = L.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=again, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    resumed.fit(Classifier(), source, ckpt_path=tmp_path / "last.ckpt")
    for old, new in zip(monitors, again, strict=True):
        assert new.history[:2] == old.history
        assert [row["epoch"] for row in new.history] == [0, 1, 2]


def test_half_precision_is_read_too(loaders):
    source, target = loaders
    monitor = ShiftMonitor(Classifier.outputs, source, target)
    trained(source, monitor, max_epochs=1, precision="bf16-mixed")
    assert all(np.isfinite(value) for value in monitor.history[0].values())


@pytest.mark.parametrize(("precision", "rel"), [("64-true", 1e-6), ("bf16-true", 0.1)])
def test_a_module_in_another_dtype_is_given_batches_of_it(loaders, data, precision, rel):
    source, target = loaders
    monitor = ShiftMonitor(Classifier.outputs, source, target)
    _, module = trained(source, monitor, max_epochs=1, precision=precision)
    xs, ys, xt, _ = data
    module.eval()
    with torch.no_grad():
        (z_s, _), (z_t, logits) = (module.float().outputs((x,)) for x in (xs, xt))
    expected = bures.ckb(z_s.double(), ys, z_t.double(), logits.double().softmax(1))
    assert monitor.history[0]["shift/ckb"] == pytest.approx(float(expected), rel=rel)


def test_outputs_that_are_not_finite_do_not_stop_the_training(loaders):
    source, target = loaders

    def broken(module, batch):
        z, logits = module.outputs(batch)
        return z * torch.nan, logits

    monitor = ShiftMonitor(broken, source, target)
    with pytest.warns(UserWarning, match="not finite; the shift cannot be read"):
        trained(source, monitor, max_epochs=1)
    assert np.isnan(monitor.history[0]["shift/ckb"])


def test_a_look_outside_a_trainer(loaders):
    source, target = loaders
    found = ShiftMonitor(Classifier.outputs, list(source), list(target)).look(Classifier())
    assert {f"shift/{name}" for name in found} == KEYS
    assert ShiftReading._fields[0] == "ckb"


SCRIPT = """
import json, sys, torch, lightning as L
from pathlib import Path
from torch.utils.data import DataLoader, TensorDataset
from bures.integrations.lightning import ShiftMonitor

class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.head(self.body(batch[0])), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

def outputs(module, batch):
    z = module.body(batch[0])
    return z, module.head(z)

torch.set_num_threads(1)
source = DataLoader(TensorDataset(torch.randn(64, 4), torch.arange(64) % 2), batch_size=16)  # other in each process
monitor = ShiftMonitor(outputs, source, DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=16))
trainer = L.Trainer(
    max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", callbacks=[monitor], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
)
trainer.fit(Classifier(), source)
found = {"history": monitor.history, "logged": float(trainer.callback_metrics["shift/ckb"])}
Path(sys.argv[1], f"{trainer.global_rank}.json").write_text(json.dumps(found))
"""


@pytest.mark.slow
def test_two_processes_log_what_the_first_sees(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "train.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["logged"] == pytest.approx(first["history"][-1]["shift/ckb"], rel=1e-6)
    assert "sync_dist" not in done.stderr


X, Y = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
BAD = {
    "outputs": ({"outputs": None}, TypeError, "outputs is a NoneType; accepted is a function"),
    "labels": ({"target_labels": 3}, TypeError, "target_labels is a int"),
    "an iterator": ({"source": iter([(X, Y)])}, TypeError, "source is a .*read again"),
    "no loader": ({"target": 5}, TypeError, "target is a int"),
    "every": ({"every": 0}, ValueError, "every=0"),
    "max_samples": ({"max_samples": -1}, ValueError, "max_samples=-1"),
    "empty": ({"target": []}, ValueError, "target gave 0 samples"),
    "no labels": ({"source": [(X,)]}, TypeError, r"a source batch is a tuple.*pass source_labels"),
    "one output": ({"outputs": lambda module, batch: module.outputs(batch)[0]}, ValueError, "outputs gave .* source"),
    "float labels": ({"source": [(X, Y.float())]}, ValueError, "source_labels gave a .*integers"),
    "class": ({"source": [(X, Y + 1)]}, ValueError, r"classes from 1 to 3 but the logits have 3 columns"),
    "target class": (
        {"target": [(X, Y - 1)], "target_labels": lambda batch: batch[1]},
        ValueError,
        "target_labels gave classes from -1",
    ),
    "names": ({"class_names": ["a"]}, ValueError, "class_names has 1 names but outputs gives logits of 3"),
    "eps": ({"eps": 0}, ValueError, "eps=0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    changes, error, message = BAD[case]
    options = {"outputs": Classifier.outputs, "source": [(X, Y)], "target": [(X,)], **changes}
    module = Classifier()
    with pytest.raises(error, match=message):
        ShiftMonitor(**options).look(module)
    assert module.training


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits_t": torch.zeros(8, 2)}, r"logits_s has shape \(8, 3\) and logits_t \(8, 2\)"),
        ({"y_s": Y + 1}, "source_labels"),
        ({"y_s": Y[:5]}, "y_s is a .* beside 8 logits"),
        ({"y_t": Y.float()}, "y_t is a .* beside 8 logits"),
        ({"z_t": X[:5]}, "target_probabilities has 8 rows but there are 5 features"),
        ({"z_s": X * torch.nan}, "source_features"),
    ],
)
def test_bad_samples_are_named(changes, message):
    samples = {"z_s": X, "logits_s": torch.zeros(8, 3), "y_s": Y, "z_t": X, "logits_t": torch.zeros(8, 3)}
    with pytest.raises(ValueError, match=message):
        read_shift(**{**samples, **changes})


def test_without_lightning_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def without_lightning(name, *arguments, **options):
        if name.partition(".")[0] == "lightning":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "bures.integrations.lightning")
    monkeypatch.setattr(builtins, "__import__", without_lightning)
    with pytest.raises(ImportError, match=r"needs Lightning.*pip install lightning"):
        importlib.import_module("bures.integrations.lightning")
