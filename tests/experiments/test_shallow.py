"""Shallow methods as cells: what the estimators say, with a manifest, and a command that repeats it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import vectors

from bures.data import write_features
from bures.estimators import AdaptedClassifier
from bures.experiments import Cell, ShallowCell, run_sweep, shallow_names
from bures.experiments._shallow import SHALLOW


@pytest.fixture
def files(tmp_path):
    here, there = vectors(60, seed=1, name="here", d=8), vectors(48, seed=2, name="there", d=8, shift=1.0)
    return [str(write_features(tmp_path / f"{domain.name}.npz", domain)) for domain in (here, there)], here, there


@pytest.mark.parametrize("method", shallow_names())
def test_the_accuracy_is_that_of_the_estimator(files, method):
    if method.startswith("ot-"):
        pytest.importorskip("ot")
    names, here, there = files
    result = ShallowCell(*names, method, 3).run()
    xs, xt = (domain.samples.tensor.double().numpy() for domain in (here, there))
    model = AdaptedClassifier(SHALLOW[method].build(3)).fit_source_target(xs, here.labels.numpy(), xt)
    assert result["final"]["accuracy"] == pytest.approx(np.mean(model.predict(xt) == there.labels.numpy()), abs=1e-6)
    assert json.loads(json.dumps(result)) == result
    assert result["recipe"]["options"]["estimator.max_iter"] == 1000


def test_seeds_matter_where_the_method_draws_random_numbers():
    for method in SHALLOW.values():
        adapter = method.build(7)
        assert (getattr(adapter, "seed", None) == 7) is method.seeded


def test_the_manifest_has_what_that_of_a_network_has(files, tmp_path):
    names, _, there = files
    cell = ShallowCell(*names, "coral", 0, "mine", "here:there")
    (result,) = run_sweep([cell], tmp_path / "ledger.jsonl").results
    fields = {"schema", "key", "task", "recipe_name", "method", "seed", "command", "final", "notes", "data", "recipe"}
    assert fields | {"versions", "hardware", "seconds"} <= set(result)
    assert result["command"] == "bures bench mine --methods coral --tasks here:there --seeds 0 --results results-local"
    assert result["data"]["target"]["samples"] == len(there)
    assert {"adapter.reg": 1.0, "adapter.align_means": True}.items() <= result["recipe"]["options"].items()


def test_a_cell_takes_one_core_and_leaves_the_process_as_it_was(files):
    quick = {"epochs": 1, "epoch": 2, "batch_size": 16, "hidden": 16, "features": 8, "image_size": 8}
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for cell in (ShallowCell(*files[0], "coral", 0), Cell("optdigits", "optdigits", "digits", "source", 0, quick)):
            assert cell.run()["hardware"]["threads"] == 1
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_labels_of_the_target_are_not_used(files, tmp_path):
    names, _, there = files
    wrong = replace(there, name="wrong", labels=there.labels.roll(1))
    other = str(write_features(tmp_path / "wrong.npz", wrong))
    for method in ("ckw-map", "coral"):
        right, misled = (ShallowCell(names[0], target, method, 0).run()["final"] for target in (names[1], other))
        assert right["score"] == misled["score"]
        assert right["accuracy"] > misled["accuracy"]


def test_domains_that_cannot_serve_are_refused(files, tmp_path):
    names, _, there = files
    unlabelled = str(write_features(tmp_path / "unlabelled.npz", replace(there, labels=None)))
    with pytest.raises(ValueError, match="unlabelled; a table of accuracies needs its labels"):
        ShallowCell(names[0], unlabelled, "coral", 0).run()
    with pytest.raises(ValueError, match="method='corral' is unknown"):
        ShallowCell(*names, "corral", 0)
