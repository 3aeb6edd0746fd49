"""Every example runs in its quick form, from any folder, and finds what its page says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def no_example_is_left_out():
    scripts = {path.stem for path in (ROOT / "examples").glob("[!_]*.py")}
    tested = {
        "complexity",
        "conditional_shift",
        "convergence",
        "lightning_loop",
        "moments",
        "training_loop",
        "two_sample_test",
        "which_shift",
    }
    assert scripts == tested, "a new example needs a test here"


@pytest.fixture
def run_example(request):
    """A function that runs an example as a user would, without a display, and returns what it printed.

    Warnings are errors but for those that pytest was told with -W to ignore, as is done for old releases.
    """
    ignored = [word for rule in request.config.getoption("pythonwarnings") or () for word in ("-W", rule)]
    return lambda name, folder: run(name, folder, ["-W", "error", *ignored])


def run(name, folder, options):
    # One thread: the tests run beside each other.
    environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *options, ROOT / "examples" / f"{name}.py", "--quick", "--output", folder]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_manifest(folder):
    text = (folder / "manifest.json").read_text()
    assert str(folder) not in text
    assert str(ROOT) not in text
    assert not list(folder.glob("*.tmp"))
    return json.loads(text)


def test_conditional_shift(tmp_path, run_example):
    printed = run_example("conditional_shift", tmp_path)
    assert "CKB" in printed
    assert (tmp_path / "conditional_shift.png").stat().st_size > 10_000


def test_convergence(tmp_path, run_example):
    printed = run_example("convergence", tmp_path)
    for name in ("convergence", "convergence_gaussian"):
        for suffix in (".png", ".svg"):
            assert (tmp_path / name).with_suffix(suffix).stat().st_size > 10_000
    results = read_manifest(tmp_path)["results"]
    slopes = results["slopes"]
    assert len(slopes) == 2 * 2 * 2 * 3
    assert printed.count("regularised  ") == len(slopes) // 2
    for fit in slopes:
        if fit["error_to"] == "limit" and fit["alpha"] == 0.1:
            assert fit["verdict"] == "fails", fit
        else:
            assert fit["slope"] < 0, fit
            assert fit["verdict"] != "fails", fit
    orders = results["order_of_regularisation_error_in_eps"]
    for kernel in ("linear", "gaussian"):
        for quantity in ("trace", "ckb"):
            assert orders[kernel][quantity] == pytest.approx(1, abs=0.01)


def test_complexity(tmp_path, run_example):
    printed = run_example("complexity", tmp_path)
    assert (tmp_path / "complexity.png").stat().st_size > 10_000
    exponents = read_manifest(tmp_path)["results"]["exponents"]
    assert len(exponents) == 3 * 2 * 2
    assert printed.count("value + gradient") == len(exponents) // 2
    # Times on a shared machine are rough: that the cost grows in most settings is all that is asserted of them.
    for varied in ("n", "d", "K"):
        assert median(fit["exponent"] for fit in exponents if fit["varied"] == varied) > 0, varied


def test_lightning_loop(tmp_path, run_example):
    run_example("lightning_loop", tmp_path)
    assert (tmp_path / "lightning_loop.png").stat().st_size > 10_000
    histories = read_manifest(tmp_path)["results"]["histories"]
    last = {name: history[-1] for name, history in histories.items()}
    assert set(last) == {"source only", "CKB", "CKW"}
    # A few epochs: the losses have begun to bring the domains together, and the source is learnt.
    assert last["CKB"]["shift/ckb"] < last["source only"]["shift/ckb"]
    assert all(row["shift/source_accuracy"] > 0.5 for row in last.values())


def test_moments(tmp_path, run_example):
    printed = run_example("moments", tmp_path)
    assert "random Fourier" in printed
    assert (tmp_path / "moments.png").stat().st_size > 10_000
    results = read_manifest(tmp_path)["results"]
    for name, values in results["against_D"].items():
        assert values["error"][-1] < 0.3 * values["error"][0], name
    for values in results["against_n"].values():
        assert all(error <= bound for error, bound in zip(values["error"], values["bound"], strict=True))


def test_training_loop(tmp_path, run_example):
    printed = run_example("training_loop", tmp_path)
    assert "unlabelled" in printed
    accuracies = read_manifest(tmp_path)["results"]["target_accuracy_last_epoch"]
    assert set(accuracies) == {"source", "source+adabn", "entropy", "kernel-bures", "ckb", "ckw"}
    # Ten classes: every adapted network is far from chance after a few epochs, whatever the machine's rounding.
    assert all(values[0] > 25 for name, values in accuracies.items() if name != "source")


def test_two_sample_test(tmp_path, run_example):
    printed = run_example("two_sample_test", tmp_path)
    assert "refused: ys holds true labels but yt predicted ones" in printed
    assert (tmp_path / "two_sample_test.png").stat().st_size > 10_000
    results = read_manifest(tmp_path)["results"]
    assert {name: test["rejected"] for name, test in results.items()} == {
        "conditional": True,
        "marginal": False,
        "predicted": True,
        "aggregated": True,
    }


def test_which_shift(tmp_path, run_example):
    run_example("which_shift", tmp_path)
    assert (tmp_path / "which_shift.png").stat().st_size > 10_000
    assert (tmp_path / "report.html").stat().st_size > 5_000
    results = read_manifest(tmp_path)["results"]
    for report in results.values():
        found = {finding["shift"]: finding["found"] for finding in report["findings"]}
        assert found == {"label": True, "marginal": True, "conditional": True}
    ranked = sorted(results["with_labels"]["classes"], key=lambda row: -row["effect_size"])
    assert {row["name"] for row in ranked[:2]} == {3, 8}
    # The true share of ones in the target, 1 / (1 + 9 / 3), lies in the interval estimated without its labels.
    ones = results["without_labels"]["classes"][1]
    assert ones["low"] - 0.02 <= 1 / 4 <= ones["high"] + 0.02
