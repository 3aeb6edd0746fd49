"""Training in two processes gives what one process gives on the same global batch."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from distributed_steps import parts, step_gradients
from safetensors.torch import load_file
from small_runs import adapt, in_processes, pictures

from bures.methods import Batch, make_method
from bures.training import Recipe

METHODS = ["ckb", "ckb+mmd", "ckw", "entropy", "source", "kernel-bures"]


def in_one(method, batch_size):
    """Loss and gradients of the first step, from the network and the method's own definition."""
    network, inputs, data, _ = parts(method, batch_size)
    s, t = (plan.indices(0) for plan in data.plans)
    source, target = (inputs.evaluation(domain.samples.tensor).double() for domain in (data.source, data.target))
    z_s, logits_s = network(source[s])
    z_t, logits_t = network(target[t])
    y_s = data.source.labels[s]
    loss = F.cross_entropy(logits_s, y_s) + make_method(method)(Batch(z_s, logits_s, y_s, z_t, logits_t), 0.0).total
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("batch_size", [16, 15])  # 8 + 8 samples, and 8 + 7
def test_loss_and_gradients_of_two_processes_are_those_of_one(batch_size, tmp_path):
    cases = [(method, batch_size) for method in METHODS]
    ranks = in_processes(step_gradients, 2, tmp_path, cases)
    for number, method in enumerate(METHODS):
        loss, gradients = in_one(method, batch_size)
        assert [rank[number]["rows"] for rank in ranks] == [8, batch_size - 8]
        for rank in ranks:
            torch.testing.assert_close(rank[number]["loss"], loss, rtol=0, atol=1e-9)
            assert rank[number]["gradients"].keys() == gradients.keys()
            for name, gradient in gradients.items():
                torch.testing.assert_close(rank[number]["gradients"][name], gradient, rtol=0, atol=1e-9)
                assert float(gradient.abs().max()) > 1e-6  # nothing is compared with nothing


SCRIPT = """
    import os
    import signal
    import sys
    import warnings

    import torch
    from small_runs import adapt, pictures

    from bures.training import Recipe

    from bures.training import AdaptationModule

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    original = AdaptationModule.training_step

    def training_step(module, step, number):
        if step.number == 3 and "stop" in sys.argv[3]:  # SIGTERM, to one process or to both
            if module.global_rank == 0 or "all" in sys.argv[3]:
                os.kill(os.getpid(), signal.SIGTERM)
        return original(module, step, number)

    AdaptationModule.training_step = training_step
    recipe = Recipe(method=sys.argv[2], network="lenet", epochs=2, batch_size=15, norm="none", head="linear",
                    precision="64-true", optimiser="sgd", lr=0.1, queue=20,
                    queue_full_gradient=sys.argv[2] == "ckb")
    data = pictures(50, seed=1), pictures(46, seed=2, shift=30)
    run = adapt(*data, recipe, sys.argv[1], devices=2, strategy="ddp", resume=sys.argv[3] == "resume")
    assert run.manifest["status"] == "finished"
"""


def trained_in_two(folder, method, task="train"):
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    paths = [str(Path(__file__).parents[1]), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(folder / "two"), method, task]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode == 0) == (not task.startswith("stop")), done.stderr
    if task.startswith("stop"):
        assert "StoppedBySignal: stopped by SIGTERM after step 4; the state is saved" in done.stderr
    return folder / "two"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bures.training.CollapseWarning")
@pytest.mark.parametrize(
    ("method", "tasks"),
    [("ckb+mmd", "whole"), ("dann", "whole"), ("source", "whole"), ("ckb", "stop one"), ("ckb", "stop all")],
)
def test_a_run_on_two_devices_ends_like_a_run_on_one(method, tasks, tmp_path):
    if tasks == "whole":
        two = trained_in_two(tmp_path, method)
    else:
        trained_in_two(tmp_path, method, tasks)
        two = trained_in_two(tmp_path, method, "resume")
    network = {"network": "lenet", "norm": "none", "head": "linear", "precision": "64-true"}
    network["queue_full_gradient"] = method == "ckb"
    # SGD and not Adam, which does not care for the scale of the gradient.
    recipe = Recipe(method=method, epochs=2, batch_size=15, optimiser="sgd", lr=0.1, queue=20, **network)
    one = adapt(pictures(50, seed=1), pictures(46, seed=2, shift=30), recipe, tmp_path / "one").path
    for name in ("model.safetensors", "best.safetensors"):
        weights, expected = load_file(two / name), load_file(one / name)
        assert weights.keys() == expected.keys()
        for key in expected:
            assert expected[key].dtype == torch.float64
            torch.testing.assert_close(weights[key], expected[key], rtol=0, atol=1e-9)
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (one, two)]
    for rows in zip(*(manifest["epochs"] for manifest in manifests), strict=True):
        a, b = ({key: value for key, value in row.items() if key != "seconds"} for row in rows)
        assert a == pytest.approx(b, abs=1e-9)
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())


def test_batchnorm_on_several_devices_without_synchronisation_is_warned_of(tmp_path):
    from bures.training._devices import check_devices
    from bures.training._setting import prepare

    data = pictures(20, seed=1), pictures(20, seed=2)

    def setting(**options):
        recipe = Recipe(network="lenet", hidden=8, features=8, **{"batch_size": 8, **options})
        return prepare(*data, None, recipe, partial=False)

    with pytest.warns(UserWarning, match=r"BatchNorm sees 4 samples of a device at a time.*sync_batchnorm=True"):
        check_devices(setting(), 2, "ddp", False)
    # No warning with synchronisation, on one device, or without BatchNorm: warnings are errors here.
    check_devices(setting(), 2, "ddp", True)
    check_devices(setting(), 1, "auto", False)
    check_devices(setting(norm="group", head="linear"), 2, "ddp", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "ddp_spawn"}, r"strategy='ddp_spawn' trains in processes .* accepted is 'ddp'"),
        ({"strategy": "ddp_fork"}, "strategy='ddp_fork'"),
        ({"strategy": "ddp", "devices": 9}, r"batch_size=16 is too small for 9 devices; .* accepted is 18 or more"),
    ],
)
def test_what_several_devices_cannot_do_is_refused_before_a_folder_is_made(options, message, tmp_path):
    recipe = Recipe(network="lenet", norm="none", head="linear", batch_size=16)
    with pytest.raises(ValueError, match=message):
        adapt(pictures(20, seed=1), pictures(20, seed=2), recipe, tmp_path / "run", **{"devices": 2, **options})
    assert not (tmp_path / "run").exists()
