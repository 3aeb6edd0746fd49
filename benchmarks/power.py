"""Level, power and speed of the two-sample tests on simulated data, beside other tests: `python -m benchmarks.power`.

The level is the rejection rate without a shift, over 1000 data sets; power is the rejection rate against the size of
a shift. Both are written as manifests. The other tests are a classifier two-sample test (scikit-learn) and, where
`--alibi-python` names an interpreter that has alibi-detect, its ContextMMDDrift, run there in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

import bures
from bures.data import GaussianClasses
from bures.files import write_json
from bures.provenance import hardware, versions
from bures.testing import out_of_fold_labels

N = 60
DIMENSION = 5
LEVEL = 0.05
PERMUTATIONS = 99
ALIBI = "alibi-detect ContextMMD"
OUTPUT = Path(__file__).parent.parent / "results" / "testing"

EVEN = np.full(3, 1 / 3)
MEANS = 1.2 * np.eye(3, DIMENSION)
COVARIANCES = np.stack([np.eye(DIMENSION)] * 3)
SHIFTS = {
    "mean": np.array([0.0, 0.3, 0.6, 0.9]),
    "variance": np.array([0.0, 0.2, 0.4, 0.6]),
    "swapped classes": np.array([0.0, 0.15, 0.3, 0.45]),
    "one class": np.array([0.0, 0.4, 0.8, 1.2]),
    "label shift only": np.array([0.0, 0.2, 0.4, 0.6]),
}
STRENGTH_LABELS = {
    "mean": "shift of every class mean along one axis (standard deviations)",
    "variance": "relative increase of the standard deviation of every class",
    "swapped classes": "share of two classes that has changed places",
    "one class": "shift of one class mean along one axis (standard deviations)",
    "label shift only": "frequency moved from the first class to the third",
}


def draw_pair(shift: str, strength: float, rng: np.random.Generator, n: int = N) -> tuple[np.ndarray, ...]:
    """A source and a target that differ by a shift of known kind and size."""
    frequencies_s, frequencies_t, means, covariances = EVEN, EVEN, MEANS.copy(), COVARIANCES.copy()
    if shift == "mean":
        means[:, -1] += strength
    elif shift == "variance":
        covariances *= (1 + strength) ** 2
    elif shift == "one class":
        means[0, -1] += strength
    elif shift == "label shift only":
        frequencies_s = EVEN + strength / 2 * np.array([1.0, 0.0, -1.0])
        frequencies_t = EVEN - strength / 2 * np.array([1.0, 0.0, -1.0])
    xs, ys = GaussianClasses(frequencies_s, MEANS, COVARIANCES).sample(n, rng)
    xt, yt = GaussianClasses(frequencies_t, means, covariances).sample(n, rng)
    if shift == "swapped classes":
        changes = rng.random(n) < strength
        yt = np.where(changes & (yt < 2), 1 - yt, yt)
    return xs, ys, xt, yt


def classifier_two_sample_test(xs: np.ndarray, ys: np.ndarray, xt: np.ndarray, yt: np.ndarray, seed: int) -> float:
    """p-value of a classifier of domains, given features and classes, on the half it was not trained on."""
    from sklearn.svm import SVC

    x = np.hstack([np.vstack([xs, xt]), np.eye(3)[np.concatenate([ys, yt])]])
    domain = np.repeat([0, 1], [len(xs), len(xt)])
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[: len(x) // 2], order[len(x) // 2 :]
    right = int((SVC().fit(x[train], domain[train]).predict(x[test]) == domain[test]).sum())
    return float(binom.sf(right - 1, len(test), 0.5))


def conditional(**options) -> Callable[..., float]:
    def p_value(xs, ys, xt, yt, seed):
        return bures.conditional_test(
            xs, ys, xt, yt, n_permutations=PERMUTATIONS, seed=seed, per_class=False, **options
        ).p_value

    return p_value


def marginal(**options) -> Callable[..., float]:
    def p_value(xs, _ys, xt, _yt, seed):
        return bures.marginal_test(xs, xt, n_permutations=PERMUTATIONS, seed=seed, **options).p_value

    return p_value


def with_predictions(**options) -> Callable[..., float]:
    """The right way without target labels: predictions out of fold in both domains."""

    def p_value(xs, ys, xt, _yt, seed):
        source, target = out_of_fold_labels(xs, ys, xt, seed=seed)
        return conditional(**options)(xs, source, xt, target, seed)

    return p_value


def mixed_labels(**options) -> Callable[..., float]:
    """The wrong way, which the library refuses where it can: true source labels against predicted target labels."""

    def p_value(xs, ys, xt, _yt, seed):
        target = out_of_fold_labels(xs, ys, xt, seed=seed).target
        return conditional(**options)(xs, ys, xt, np.asarray(target), seed)

    return p_value


class LevelStudy(NamedTuple):
    """A test, and data without a shift in what it compares."""

    test: Callable[..., float]
    shift: str = "none"
    strength: float = 0.0
    n: int = N


LEVELS = {
    "ckw": LevelStudy(conditional()),
    "ckb": LevelStudy(conditional(statistic="ckb")),
    "ckw, label shift": LevelStudy(conditional(), "label shift only", 0.4),
    "ckw, 24 Nyström features": LevelStudy(conditional(n_features=24)),
    "ckw, aggregated bandwidths": LevelStudy(conditional(bandwidth="aggregate")),
    "ckw, labels predicted out of fold": LevelStudy(with_predictions()),
    "mmd": LevelStudy(marginal()),
    "kernel Bures": LevelStudy(marginal(statistic="kernel-bures")),
    "ckw, labels predicted out of fold, 120 samples": LevelStudy(with_predictions(n_features=24), n=120),
    "ckw, true against predicted labels, 120 samples": LevelStudy(mixed_labels(n_features=24), n=120),
    "conditional means": LevelStudy(conditional(statistic="means")),
}
POWERS: dict[str, Callable[..., float]] = {
    "ckw": conditional(),
    "ckb": conditional(statistic="ckb"),
    "ckw, aggregated bandwidths": conditional(bandwidth="aggregate"),
    "conditional means": conditional(statistic="means"),
    "mmd (marginal)": marginal(),
    "classifier two-sample test": classifier_two_sample_test,
}


def rejection_interval(n: int) -> tuple[float, float]:
    """Where a rejection rate over n data sets lies with probability 99 % if the level is what it should be."""
    return float(binom.ppf(0.005, n, LEVEL)) / n, float(binom.ppf(0.995, n, LEVEL)) / n


def measure_levels(n_sets: int, seed: int, known: dict) -> dict:
    """Rejection rates without a shift; those in ``known`` are not measured again."""
    interval = rejection_interval(n_sets)
    results = {}
    for number, (name, study) in enumerate(LEVELS.items()):
        if name not in known:
            rejected = 0
            for repetition in range(n_sets):
                pair = draw_pair(
                    study.shift, study.strength, np.random.default_rng([seed, number, repetition]), study.n
                )
                rejected += study.test(*pair, repetition) <= LEVEL
            rate = float(rejected) / n_sets
            known[name] = {"rejection_rate": rate, "within_interval": bool(interval[0] <= rate <= interval[1])}
        results[name] = known[name]
        print(f"{name}: {known[name]['rejection_rate']:.3f}", flush=True)
    return {"interval_99": list(interval), "tests": results}


def measure_powers(n_sets: int, n_sets_alibi: int, seed: int, alibi_python: str | None, known: dict) -> dict:
    """Rejection rates against the size of a shift; tests in ``known`` are not run again."""
    results: dict[str, dict] = {}
    for shift, strengths in SHIFTS.items():
        rates = known.get(shift, {}).get("power", {})
        names = [*POWERS, *([ALIBI] if alibi_python is not None or ALIBI in rates else [])]
        missing = [name for name in names if name not in rates]
        for strength in strengths:
            pairs = [
                draw_pair(shift, strength, np.random.default_rng([seed, round(1000 * strength), repetition]))
                for repetition in range(n_sets)
            ]
            for name in missing:
                if name == ALIBI:
                    p_values = alibi_p_values(alibi_python, pairs[:n_sets_alibi])
                else:
                    p_values = [POWERS[name](*pair, repetition) for repetition, pair in enumerate(pairs)]
                rates.setdefault(name, []).append(float(np.mean(np.array(p_values) <= LEVEL)))
            print(shift, strength, {name: rates[name][-1] for name in missing}, flush=True)
        power = {name: rates[name] for name in names}
        results[shift] = {"strength": strengths.tolist(), "label": STRENGTH_LABELS[shift], "power": power}
    return results


def measure_speed(seed: int) -> dict:
    """Seconds for 999 permutations of 2000 + 2000 samples of 64 features in ten classes."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, 64))
    (xs, ys), (xt, yt) = (
        (centres[y] + rng.normal(size=(2000, 64)), y) for y in (rng.integers(10, size=2000) for _ in range(2))
    )
    results = {}
    for name, options in {
        "128 features, each class too": {},
        "256 features, each class too": {"n_features": 256},
        "256 features": {"n_features": 256, "per_class": False},
    }.items():
        start, start_cpu = time.perf_counter(), time.process_time()
        bures.conditional_test(xs, ys, xt, yt, n_permutations=999, **options)
        seconds = {"wall": time.perf_counter() - start, "cpu": time.process_time() - start_cpu}
        results[name] = {clock: round(value, 1) for clock, value in seconds.items()}
        print(name, results[name], flush=True)
    return results


ALIBI_WORKER = """
import sys, numpy as np
from alibi_detect.cd import ContextMMDDrift
data = np.load(sys.argv[1])
p_values = []
for xs, ys, xt, yt in zip(data["xs"], data["ys"], data["xt"], data["yt"]):
    eye = np.eye(3, dtype=np.float32)
    detector = ContextMMDDrift(
        xs.astype(np.float32), eye[ys], p_val=0.05, backend="pytorch", n_permutations=int(sys.argv[2]), verbose=False
    )
    p_values.append(detector.predict(xt.astype(np.float32), eye[yt])["data"]["p_val"])
np.save(sys.argv[3], np.array(p_values))
"""


def alibi_p_values(python: str, pairs: list[tuple[np.ndarray, ...]]) -> np.ndarray:
    """p-values of ContextMMDDrift, classes given as a one-hot context, from an interpreter of its own."""
    with tempfile.TemporaryDirectory() as folder:
        data, result = Path(folder, "pairs.npz"), Path(folder, "p.npy")
        stacked = [np.stack(part) for part in zip(*pairs, strict=True)]
        np.savez(data, **dict(zip(("xs", "ys", "xt", "yt"), stacked, strict=True)))
        command = [python, "-W", "ignore", "-c", ALIBI_WORKER, str(data), str(PERMUTATIONS), str(result)]
        subprocess.run(command, check=True, capture_output=True, env={"OMP_NUM_THREADS": "1"})
        return np.load(result)


def alibi_versions(python: str) -> dict[str, str]:
    """Versions of alibi-detect, and of what it runs on there."""
    code = "import json; from importlib.metadata import version as v; print(json.dumps({n: v(n) for n in %r}))"
    packages = ["alibi-detect", "scikit-learn", "torch", "numpy"]
    done = subprocess.run([python, "-c", code % packages], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def draw_figure(results: dict, path: Path) -> None:
    import matplotlib.pyplot as plt

    # A marker for each, and colours that colour-blind readers tell apart.
    looks = {
        "ckw": ("#d55e00", "-", "o"),
        "ckw, aggregated bandwidths": ("#d55e00", "--", "D"),
        "ckb": ("#e69f00", "-", "s"),
        "conditional means": ("#cc79a7", "-", "^"),
        "mmd (marginal)": ("#56b4e9", "-", "v"),
        "classifier two-sample test": ("#0072b2", "-", "P"),
        ALIBI: ("#222222", "-.", "X"),
    }
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.4), layout="constrained", sharey=True)
    for ax, (shift, result) in zip(axes.flat, results.items(), strict=False):
        for name, power in result["power"].items():
            colour, style, marker = looks[name]
            ax.plot(result["strength"], power, style, color=colour, marker=marker, markersize=5.5, label=name)
        ax.axhline(LEVEL, color="#636363", linewidth=0.8, linestyle=":")
        ax.set(title=shift, xlabel=result["label"], ylim=(0, 1.02))
        ax.xaxis.label.set_fontsize(8)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("share of data sets with a finding")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(handles, labels, loc="center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _known(arguments: argparse.Namespace, study: str) -> dict:
    """The manifest of an earlier run with the same seed and number of data sets, if it is to be completed."""
    path = arguments.output / f"{study}.json"
    if not (arguments.resume and path.is_file()):
        return {}
    manifest = json.loads(path.read_text(encoding="utf-8"))
    same = (manifest["seed"], manifest["settings"]["n_data_sets"]) == (arguments.seed, arguments.n_sets)
    return manifest if same else {}


def write_manifest(path: Path, arguments: argparse.Namespace, settings: dict, results: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = [arguments.study, "--seed", str(arguments.seed)]
    if "n_data_sets" in settings:
        options += ["--n-sets", str(arguments.n_sets)]
    if "alibi_detect_n_data_sets" in settings:
        options += ["--n-sets-alibi", str(settings["alibi_detect_n_data_sets"]), "--alibi-python", "PYTHON"]
    manifest = {
        "command": " ".join(["python -m benchmarks.power", *options]),
        "versions": versions(),
        "hardware": hardware(),
        "seed": arguments.seed,
        "settings": {
            "n_source": N,
            "n_target": N,
            "dimension": DIMENSION,
            "n_permutations": PERMUTATIONS,
            "level": LEVEL,
            **settings,
        },
        "results": results,
    }
    print(f"Written: {write_json(path, manifest).name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("study", choices=("level", "power", "speed", "figure"))
    parser.add_argument("--n-sets", type=int, default=1000, help="simulated data sets for each rate")
    parser.add_argument("--n-sets-alibi", type=int, default=50, help="the same for alibi-detect, which is slower")
    parser.add_argument("--alibi-python", help="an interpreter that has alibi-detect")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep the rates that were measured already")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the manifests")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", bures.MissingClassWarning)
    if arguments.study == "level":
        known = _known(arguments, "level").get("results", {}).get("tests", {})
        results = measure_levels(arguments.n_sets, arguments.seed, known)
        settings = {"n_data_sets": arguments.n_sets}
        write_manifest(arguments.output / "level.json", arguments, settings, results)
    elif arguments.study == "power":
        known = _known(arguments, "power")
        results = measure_powers(
            arguments.n_sets, arguments.n_sets_alibi, arguments.seed, arguments.alibi_python, known.get("results", {})
        )
        settings = {"n_data_sets": arguments.n_sets}
        if arguments.alibi_python is not None:
            settings |= {
                "alibi_detect_versions": alibi_versions(arguments.alibi_python),
                "alibi_detect_n_data_sets": arguments.n_sets_alibi,
            }
        else:
            earlier = known.get("settings", {}).items()
            settings |= {name: value for name, value in earlier if name.startswith("alibi_detect")}
        write_manifest(arguments.output / "power.json", arguments, settings, results)
    elif arguments.study == "speed":
        results = measure_speed(arguments.seed)
        settings = {"n_source": 2000, "n_target": 2000, "dimension": 64, "n_classes": 10, "n_permutations": 999}
        write_manifest(arguments.output / "speed.json", arguments, settings, results)
    else:
        results = json.loads((arguments.output / "power.json").read_text(encoding="utf-8"))["results"]
        draw_figure(results, Path(__file__).parent.parent / "docs" / "images" / "power.png")


if __name__ == "__main__":
    sys.exit(main())
