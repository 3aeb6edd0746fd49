"""The test of whether P(X) is the same in both domains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from bures.arrays import Array, as_feature_pair, check_choice, full_precision, is_tensor_call
from bures.devices import cpu_by_default
from bures.kernels import Kernel
from bures.testing._representation import Bandwidths, check_kernel_options
from bures.testing._result import ShiftTest
from bures.testing._run import Question, check_test_options, run_test

__all__ = ["marginal_test"]

QUESTIONS = {
    "mmd": Question("marginal", "mmd", spread=False, means=True),
    "kernel-bures": Question("marginal", "kernel-bures", spread=True, means=False),
}


@cpu_by_default()
def marginal_test(
    xs: Array,
    xt: Array,
    *,
    statistic: Literal["mmd", "kernel-bures"] = "mmd",
    n_permutations: int = 999,
    level: float = 0.05,
    seed: int = 0,
    kernel: Kernel = "gaussian",
    bandwidth: Bandwidths = "shared",
    n_features: str | int | None = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> ShiftTest:
    """Test whether P(X) is the same in two domains, by permutations.

    Parameters
    ----------
    xs : array (n, d)
        Source features.
    xt : array (m, d)
        Target features; n and m may differ.
    statistic : {"mmd", "kernel-bures"}, optional
        The squared distance between the samples: of mean embeddings, or of kernel covariances.
    n_permutations, level, seed, kernel, bandwidth, n_features, progress : optional
        As in `bures.conditional_test`.

    Returns
    -------
    ShiftTest
        Frozen: p-value, statistic, null sample, effect size.

    See Also
    --------
    conditional_test : compares P(X|Y), and sees shifts that leave P(X) as it is.

    Examples
    --------
    >>> import bures
    >>> pair = bures.data.exchanged_regions(100)  # P(X|Y) differs, P(X) does not
    >>> bures.marginal_test(pair.xs, pair.xt, n_permutations=199).rejected
    False
    >>> bures.conditional_test(*pair, n_permutations=199).rejected
    True
    """
    check_choice("statistic", statistic, tuple(QUESTIONS))
    check_test_options(n_permutations, level, seed)
    check_kernel_options(kernel, bandwidth, n_features)
    with full_precision(xs), torch.no_grad():
        tensor_call = is_tensor_call(xs=xs, xt=xt)
        s, t = (x.detach().double() for x in as_feature_pair(xs, xt))
        return run_test(
            torch.cat([s, t]),
            torch.zeros(len(s) + len(t), dtype=torch.int64, device=s.device),
            len(s),
            ["all"],
            QUESTIONS[statistic],
            kernel=kernel,
            bandwidth=bandwidth,
            eps=1.0,  # with one class there is nothing to regularise
            n_features=n_features,
            n_permutations=n_permutations,
            level=level,
            seed=seed,
            per_class=False,
            labels="none",
            missing=(),
            notes=(),
            numpy_callable=not tensor_call,
            progress=progress,
        )
