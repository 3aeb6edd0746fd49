r"""
What a distance costs
=====================

The paper's remark on complexity gives the cost of the squared CKB distance between n and m samples, in d dimensions
with c classes, as

.. math:: O\big(\max(c, d, m, n)\,(n^2 + m^2 + nm)\big).

With m = n that is three exponents of time: 3 in n, and 1 in d and in the number of classes K, as soon as these exceed
n. This example measures them for `bures.ckb`: hard and soft labels, the value alone and with its gradient, on one
thread in float32, as in training.

One thing to know before reading the figure: a maximum hides constants. Behind :math:`n^3` stands a spectral
decomposition, behind :math:`d n^2` a few matrix products, which are far cheaper for the same number of operations. So d
has to be several times n before it shows at all. The sweeps over d and K therefore use few samples and go far beyond n,
into the range where their exponents can be read.
"""

import time
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import median_slope, read_arguments, save_figure, write_manifest

import bures

arguments = read_arguments("complexity")
threads = torch.get_num_threads()
torch.set_num_threads(1)

# %%
# What is timed
# -------------
# Labels are given as rows of probabilities in both cases; ``conditioning="hard"`` takes their most probable class.

LABELS = ("hard", "soft")
TASKS = ("value", "value + gradient")


def make_problem(n, d, K):
    """Features and label rows of two domains of n samples."""
    generator = torch.Generator().manual_seed(arguments.seed)
    features = [torch.randn(n, d, generator=generator) for _ in range(2)]
    labels = [torch.randn(n, K, generator=generator).mul(3).softmax(dim=1) for _ in range(2)]
    return features[0], labels[0], features[1], labels[1]


def run(problem, labels, task):
    """One distance, and its gradient with respect to all features where asked for."""
    xs, ys, xt, yt = problem
    if task == "value":
        bures.ckb(xs, ys, xt, yt, conditioning=labels)
    else:
        xs, xt = xs.clone().requires_grad_(), xt.clone().requires_grad_()
        bures.ckb(xs, ys, xt, yt, conditioning=labels).backward()


def seconds(problem, labels, task):
    """CPU times of one run, several of them; what else the machine does counts little.

    The first run warms up and says how many short runs to time together.
    """
    times = []
    together = 1
    for _ in range(REPETITIONS + 1):
        start = time.process_time()
        for _ in range(together):
            run(problem, labels, task)
        times.append((time.process_time() - start) / together)
        together = max(1, int(SHORTEST / times[0]))
    return times[1:]


# %%
# The sweeps
# ----------
# One of n, d and K varies, the other two stay. Slopes are fitted from ``fit_from`` on, where the term in question
# dominates; below it the curves of d and K are flat. The sweep over d ends where the arrays grow to tens of megabytes:
# beyond, page faults and cache misses are timed and not arithmetic.

REPETITIONS = 3 if arguments.quick else 5
SHORTEST = 0.002 if arguments.quick else 0.03  # seconds
PAPER = {"n": 3, "d": 1, "K": 1}
if arguments.quick:
    SWEEPS = {
        "n": {"values": [64, 128, 256, 384], "fit_from": 128, "d": 64, "K": 10},
        "d": {"values": [16, 256, 2048, 8192], "fit_from": 2048, "n": 64, "K": 10},
        "K": {"values": [4, 32, 128, 256, 512], "fit_from": 128, "n": 64, "d": 64},
    }
else:
    SWEEPS = {
        "n": {"values": [64, 128, 256, 512, 768, 1024, 2048], "fit_from": 512, "d": 64, "K": 10},
        "d": {"values": [2**k for k in range(4, 16)], "fit_from": 4096, "n": 64, "K": 10},
        "K": {"values": [2**k for k in range(1, 13)], "fit_from": 256, "n": 64, "d": 64},
    }


def sweep(varied, labels, task):
    """Values of n, d or K, and times (value, repetition)."""
    plan = SWEEPS[varied]
    problems = (make_problem(**{key: plan.get(key, value) for key in PAPER}) for value in plan["values"])
    return np.array(plan["values"]), np.array([seconds(problem, labels, task) for problem in problems])


measured = {setting: sweep(*setting) for setting in product(SWEEPS, LABELS, TASKS)}
torch.set_num_threads(threads)

# %%
# Exponents beside the remark
# ---------------------------
# *Visible from* is the first value at which the time is twice that of the smallest value: before it, the exponent is
# near zero, because something else takes the time.


def fit_exponent(varied, labels, task):
    """One row of the table."""
    values, times = measured[varied, labels, task]
    used = values >= SWEEPS[varied]["fit_from"]
    slope, standard_error = median_slope(values[used], times[used])
    medians = np.median(times, axis=1)
    doubled = np.flatnonzero(medians >= 2 * medians[0])
    return {
        "varied": varied,
        "labels": labels,
        "task": task,
        "exponent": round(slope, 3),
        "standard_error": round(standard_error, 3),
        "paper": PAPER[varied],
        "fitted_over": [int(values[used][0]), int(values[-1])],
        "visible_from": int(values[doubled[0]]) if len(doubled) else None,
        "values": values.tolist(),
        "median_seconds": [float(f"{m:.3g}") for m in medians],
    }


fits = [fit_exponent(*setting) for setting in measured]
print(f"{'in':4}{'labels':8}{'task':18}{'exponent':>15}{'paper':>7}{'fitted over':>16}{'visible from':>14}")
for fit in fits:
    print(
        f"{fit['varied']:4}{fit['labels']:8}{fit['task']:18}{fit['exponent']:7.2f} ± {fit['standard_error']:.3f}"
        f"{fit['paper']:7}{'{} .. {}'.format(*fit['fitted_over']):>16}{fit['visible_from'] or '-':>14}"
    )

# %%
# The figure
# ----------

COLOURS = {"hard": "#0072B2", "soft": "#D55E00"}
STYLES = {"value": {"marker": "o", "linestyle": "-"}, "value + gradient": {"marker": "^", "linestyle": ":"}}
AXES = {
    "n": "samples in each domain, n",
    "d": "dimension of the features, d",
    "K": "number of classes, K",
}


def panel_title(varied):
    """Say which exponents were found."""
    found = {
        labels: [f["exponent"] for f in fits if (f["varied"], f["labels"]) == (varied, labels)] for labels in LABELS
    }
    fixed = ", ".join(f"{key} = {SWEEPS[varied][key]}" for key in PAPER if key != varied)
    exponents = ", ".join(f"{labels} {np.mean(pair):.1f}" for labels, pair in found.items())
    return f"exponent in {varied}: {exponents}; paper {PAPER[varied]}\n({fixed})"


def draw_panel(axes, varied):
    chosen = [fit for fit in fits if fit["varied"] == varied]
    for fit in chosen:
        values, times = measured[varied, fit["labels"], fit["task"]]
        low, middle, high = np.quantile(times, (0.25, 0.5, 0.75), axis=1)
        style = {"color": COLOURS[fit["labels"]], "markersize": 4, "linewidth": 1.3} | STYLES[fit["task"]]
        axes.plot(values, middle, label=f"{fit['labels']}, {fit['task']}: {fit['exponent']:.2f}", **style)
        axes.fill_between(values, low, high, color=style["color"], alpha=0.15, linewidth=0)
    line = np.array([SWEEPS[varied]["fit_from"], max(SWEEPS[varied]["values"])])
    lowest = min(np.interp(line[0], fit["values"], fit["median_seconds"]) for fit in chosen)
    rise = (line / line[0]) ** PAPER[varied]
    axes.plot(line, 0.5 * lowest * rise, "k--", linewidth=1, label=f"paper's remark: {PAPER[varied]}")
    if varied != "n":
        axes.axvline(SWEEPS[varied]["n"], color="0.6", linewidth=1)
        axes.annotate(f"{varied} = n", (SWEEPS[varied]["n"], 0.55), (3, 0), ("data", "axes fraction"), "offset points")
    axes.set(xscale="log", yscale="log", xlabel=AXES[varied])
    axes.set_title(panel_title(varied), fontsize=10)
    axes.legend(fontsize=8, loc="upper left", title="fitted exponent", title_fontsize=8)
    axes.grid(alpha=0.25)


figure, grid = plt.subplots(1, 3, figsize=(14, 4.8), sharey=True, layout="constrained")
for axes, varied in zip(grid, SWEEPS, strict=True):
    draw_panel(axes, varied)
grid[0].set_ylabel("CPU time of one distance, seconds")
save_figure(figure, arguments.output, "complexity")

# %%
# What was found
# --------------
# The full run (``results/complexity/complexity.json``) says:
#
# * **n**: between 512 and 2048 samples the exponents are 2.5 to 2.8, below 3 because matrix routines still gain speed
#   with size. Hard labels take less time than soft ones: their side of the problem has rank K, and only the nuclear
#   norm remains cubic, while soft labels add Cholesky factors and triangular solves in float64.
# * **d**: 1.0, linear as the remark says, but it takes d = 32 n or more until the time is twice that of few features.
#   With 64 samples much of it is passes over the features, :math:`O(nd)`, rather than the products,
#   :math:`O(n^2 d)`: the exponent in d is the same.
# * **K**: 0.8 to 0.9 and rising towards 1 once K exceeds n by a factor of four, from the distances between label rows.
#   Up to K = n, hard labels cost next to nothing; where there are more classes than samples they take the path of soft
#   ones, whose matrices have the size of the sample.

settings = {"sweeps": SWEEPS, "repetitions": REPETITIONS, "dtype": "float32", "threads": 1}
path = write_manifest("complexity", arguments, settings, {"exponents": fits})
print(f"figure and manifest are in {path.parent}")
