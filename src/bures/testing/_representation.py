"""From samples to an engine: the kernel matrix where there are few, a feature map of the pooled sample otherwise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bures.arrays import check_count
from bures.feature_maps import NystroemMap
from bures.feature_maps._bandwidth import pooled_bandwidth
from bures.kernels import Bandwidth, Kernel, check_bandwidth, check_kernel, gram_blocks
from bures.testing._design import Design
from bures.testing._engines import Engine, FeatureEngine, GramEngine, leading_directions
from bures.testing._permutations import unordered

__all__ = [
    "AGGREGATED",
    "Bandwidths",
    "check_kernel_options",
    "is_exact",
    "make_engine",
    "resolve_bandwidths",
    "value_sizes",
]

EXACT_UP_TO = 512
"""Up to this many samples in both domains together, ``n_features="auto"`` uses the kernel itself."""

AUTO_FEATURES = 128
AGGREGATED = (0.1, 0.3, 1.0, 3.0)
"""What ``bandwidth="aggregate"`` multiplies the pooled mean of squared distances by."""

RULES = ("shared", "median", "aggregate")
Bandwidths = Bandwidth | list[float] | tuple[float, ...]


def check_kernel_options(kernel: Kernel, bandwidth: Bandwidths, n_features: object) -> None:
    """Raise unless kernel, bandwidth and number of features are among those accepted."""
    check_kernel(kernel)
    if isinstance(bandwidth, (list, tuple, np.ndarray)):
        if len(bandwidth) == 0:
            raise ValueError("bandwidth is an empty list; accepted are one or more positive numbers (sigma squared)")
        for value in bandwidth:
            check_bandwidth(value, rules=())
    else:
        check_bandwidth(bandwidth, rules=RULES)
    if isinstance(n_features, str):
        if n_features != "auto":
            raise ValueError(f"n_features={n_features!r} is unknown; accepted are 'auto', None and a positive integer")
    elif n_features is not None:
        check_count("n_features", n_features)


def resolve_bandwidths(pooled: Tensor, kernel: Kernel, bandwidth: Bandwidths) -> list[float | None]:
    """Sigma squared of every kernel that takes part, from the pooled sample; [None] where the kernel has none."""
    if kernel not in ("gaussian", "laplacian"):
        return [None]
    if isinstance(bandwidth, (list, tuple, np.ndarray)):
        return [float(value) for value in bandwidth]
    if not isinstance(bandwidth, str):
        return [float(bandwidth)]
    rule = "shared" if bandwidth == "aggregate" else bandwidth
    assert isinstance(kernel, str)
    # The median needs all pairs; beyond a few thousand samples those of a part are as good, and it knows no domain.
    some = unordered(pooled)[:: max(1, len(pooled) // 4000)] if rule == "median" else pooled
    middle = pooled_bandwidth(some, kernel, rule)
    return [factor * middle for factor in AGGREGATED] if bandwidth == "aggregate" else [middle]


def is_exact(n_features: str | int | None, n_pooled: int) -> bool:
    """Whether the kernel itself is used."""
    if isinstance(n_features, str):
        return n_pooled <= EXACT_UP_TO
    return n_features is None


def make_engine(
    pooled: Tensor,
    design: Design,
    *,
    kernel: Kernel,
    sigma2: float | None,
    n_features: str | int | None,
    seed: int,
    numpy_callable: bool,
) -> tuple[Engine, float]:
    """The engine of the pooled samples (N, d), and the share of the kernel's trace that its features leave out."""
    if is_exact(n_features, len(pooled)):
        return GramEngine(_pooled_gram(pooled, kernel, sigma2, numpy_callable), design), 0.0
    width = AUTO_FEATURES if isinstance(n_features, str) else n_features
    assert width is not None
    if kernel == "linear":
        rows = pooled - pooled.mean(dim=0)
        kept = leading_directions(rows, width)
        total = float(rows.square().sum())
        return FeatureEngine(kept, design), 0.0 if total == 0 else 1 - float(kept.square().sum()) / total
    if callable(kernel):
        raise ValueError(
            f"kernel is a function and there are {len(pooled)} samples; pass n_features=None to use its whole matrix"
        )
    assert sigma2 is not None
    # Landmarks are drawn from the samples without their order, so that they depend on no domain.
    feature_map = NystroemMap.fit(
        unordered(pooled),
        n_landmarks=min(width, len(pooled)),
        kernel=kernel,  # type: ignore[arg-type]
        bandwidth=sigma2,
        landmarks="pivoted-cholesky",
        eigenvalue_cut=1e-10,
        seed=seed,
    )
    features = feature_map.features(pooled)
    return FeatureEngine(features - features.mean(dim=0), design), feature_map.trace_error


def value_sizes(pooled: Tensor, engine: Engine, kernel: Kernel, sigma2: float | None) -> Tensor:
    """How large (N,) the numbers are that the kernel's values come from: these are rounded in proportion to them.

    Samples that are equal differ by so much rounding, which is all that a test of a class of equal samples would see.
    """
    if callable(kernel):
        assert isinstance(engine, GramEngine)
        return engine.gram.diagonal().abs()
    squares = (pooled - pooled.mean(dim=0)).square().sum(dim=1)
    if kernel == "linear":
        return squares
    if kernel == "laplacian":  # whose distances are taken by differences
        return torch.ones_like(squares)
    assert sigma2 is not None
    # Squared distances are differences of products; where the bandwidth would be lost in these they are taken directly.
    return 1 + (squares / sigma2).clamp_max(torch.finfo(torch.float64).eps ** -0.5)


def _pooled_gram(pooled: Tensor, kernel: Kernel, sigma2: float | None, numpy_callable: bool) -> Tensor:
    weights = torch.full((len(pooled),), 1 / len(pooled), dtype=torch.float64, device=pooled.device)
    one = torch.ones(1, dtype=torch.float64, device=pooled.device)
    width: Bandwidth = "shared" if sigma2 is None else sigma2
    # One block is wanted; the other sample is a single row, so that the other two cost nothing.
    blocks = gram_blocks(
        pooled, pooled[:1], kernel=kernel, bandwidth=width, ws=weights, wt=one, numpy_callable=numpy_callable
    )
    return (blocks.ss + blocks.ss.T) / 2
