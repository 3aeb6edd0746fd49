r"""
Any number of samples
=====================

`bures.ckb` needs n x n matrices. With explicit features :math:`\varphi(x)^\top\varphi(x') \approx k(x, x')` the same
distance follows from sums over samples, which `bures.ConditionalMoments` takes in chunks and merges. The price is the
error of the features. This example measures it against the number of features D and the number of samples n, beside
the bound that a Nyström map certifies.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import read_arguments, save_figure, write_manifest

import bures

arguments = read_arguments("moments")

# %%
# Two domains
# -----------
# Five classes in ten features that lie near a plane, as the features of a network lie near few directions. The target
# is wider.

FEATURES, CLASSES = 10, 5


def draw_domain(n, scale, rng):
    """Samples (n, 10) and their classes."""
    shape = np.random.default_rng(1)
    centres, mixing = 2 * shape.normal(size=(CLASSES, FEATURES)), shape.normal(size=(2, FEATURES))
    y = rng.integers(CLASSES, size=n)
    noise = rng.normal(size=(n, 2)) @ mixing + 0.1 * rng.normal(size=(n, FEATURES))
    return centres[y] + scale * noise, y


# %%
# The error against D
# -------------------
# A Nyström map projects the kernel's own features on the span of some landmarks, so the distance can only become
# smaller, and by no more than :math:`(\sqrt{\tau_s} + \sqrt{\tau_t})^2`, where :math:`\tau` is the share of the
# kernel's trace that the landmarks miss. That share is itself a sum over samples, so the bound holds for the whole
# stream.

SEED = arguments.seed
SIZE = 400 if arguments.quick else 1500
COUNTS = [8, 16, 32, 64, 128] if arguments.quick else [8, 16, 32, 64, 128, 256, 512]
REPETITIONS = 3 if arguments.quick else 10
MAPS = {
    "Nyström, uniform": ("uniform", "#0072B2"),
    "Nyström, k-means++": ("k-means++", "#D55E00"),
    "Nyström, pivoted Cholesky": ("pivoted-cholesky", "#009E73"),
    "random Fourier": (None, "#7F7F7F"),
}


def fit_map(landmarks, xs, xt, n_features, seed):
    if landmarks is None:
        return bures.RandomFourierMap.fit(xs, xt, n_features=n_features, seed=seed)
    return bures.NystroemMap.fit(xs, xt, n_landmarks=n_features, landmarks=landmarks, seed=seed)


def error_and_bound(phi, source, target, exact):
    """Distance from moments less the exact one, and its bound, as shares of the traces."""
    m_s, m_t = (bures.ConditionalMoments(phi, CLASSES).update(*domain) for domain in (source, target))
    result = m_s.measure(m_t, "ckb")
    traces = result.trace_s + result.trace_t
    bound = np.nan if result.bound is None else result.bound / traces
    return abs(result.squared_distance - exact) / traces, bound


rng = np.random.default_rng(SEED)
source, target = draw_domain(SIZE, 1.0, rng), draw_domain(SIZE, 1.5, rng)
exact = bures.ckb(*source, *target)
against_d = {
    name: np.median(
        [
            [error_and_bound(fit_map(landmarks, source[0], target[0], count, seed), source, target, exact)
             for seed in range(REPETITIONS)]
            for count in COUNTS
        ],
        axis=1,
    )  # (count, error or bound)
    for name, (landmarks, _) in MAPS.items()
}  # fmt: skip
print(f"n = {SIZE}: exact squared distance {exact:.6f}; median error as a share of the traces, and bound")
for name, values in against_d.items():
    shown = "  ".join(
        f"D={count}: {error:.1e} ({bound:.0e})" for count, (error, bound) in zip(COUNTS, values, strict=True)
    )
    print(f"{name:26} {shown}")

# %%
# The error against n
# -------------------
# The map is fitted once, on a few hundred samples. The stream that follows may be of any length: what the landmarks
# miss is a property of the map and the domains, and does not grow with n.

SIZES = [100, 200, 400, 800] if arguments.quick else [100, 200, 400, 800, 1600, 3200]
FITTED_ON = 300
fitted_on = draw_domain(FITTED_ON, 1.0, rng)[0], draw_domain(FITTED_ON, 1.5, rng)[0]
N_COUNTS = (16, 64, 256)
against_n = {count: [] for count in N_COUNTS}
for n in SIZES:
    source, target = draw_domain(n, 1.0, rng), draw_domain(n, 1.5, rng)
    for count in N_COUNTS:
        phi = fit_map("pivoted-cholesky", *fitted_on, count, SEED)
        exact = bures.ckb(*source, *target, bandwidth=phi.bandwidth)
        against_n[count].append(error_and_bound(phi, source, target, exact))
print("\npivoted Cholesky, map fitted on 300 samples of each domain")
for count, values in against_n.items():
    shown = "  ".join(f"n={n}: {error:.1e} ({bound:.0e})" for n, (error, bound) in zip(SIZES, values, strict=True))
    print(f"D = {count:3}  {shown}")

# %%
# The figure
# ----------
# Solid: error. Dashed: the bound, which no error exceeds.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
for name, (_, colour) in MAPS.items():
    error, bound = against_d[name].T
    left.plot(COUNTS, error, "o-", color=colour, markersize=4, label=name)
    left.plot(COUNTS, bound, "--", color=colour, linewidth=1.2)
for count, colour in zip(N_COUNTS, ("#56B4E9", "#E69F00", "#CC79A7"), strict=True):
    error, bound = np.array(against_n[count]).T
    right.plot(SIZES, error, "o-", color=colour, markersize=4, label=f"D = {count}")
    right.plot(SIZES, bound, "--", color=colour, linewidth=1.2)
left.set(xscale="log", yscale="log", xlabel="features D", ylabel="error of the squared distance / traces")
left.set_title(f"against D, at n = {SIZE}", fontsize=10)
right.set(xscale="log", xlabel="samples in each domain, n")
right.set_title("against n, map fitted on 300 samples of each domain", fontsize=10)
for axes in (left, right):
    axes.plot([], [], "--", color="0.3", linewidth=1.2, label="its bound")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.25, which="major")
save_figure(figure, arguments.output, "moments")

# %%
# What was found
# --------------
# The full run (``results/moments/moments.json``) says:
#
# - Landmarks chosen with care pay: at D = 512 and n = 1500 the error is 2e-5 of the traces with the pivoted Cholesky
#   and 5e-5 with k-means++, against 8e-4 with landmarks drawn uniformly and 1e-3 with random Fourier features.
# - The bound holds everywhere. It is loose for few landmarks, and within a factor of five of the error from D = 256 on.
# - From 100 to 3200 samples the bound stays where it is, and the error does not grow.

certified = [values for name, values in against_d.items() if name != "random Fourier"]
assert all(np.all(values[:, 0] <= values[:, 1]) for values in [*certified, *map(np.array, against_n.values())])
write_manifest(
    "moments",
    arguments,
    {"features": FEATURES, "classes": CLASSES, "n": SIZE, "D": COUNTS, "repetitions": REPETITIONS, "sizes": SIZES,
     "fitted_on": FITTED_ON},
    {
        "against_D": {name: {"error": values[:, 0].tolist(), "bound": values[:, 1].tolist()}
                      for name, values in against_d.items()},
        "against_n": {str(count): {"error": [e for e, _ in values], "bound": [b for _, b in values]}
                      for count, values in against_n.items()},
    },
)  # fmt: skip
