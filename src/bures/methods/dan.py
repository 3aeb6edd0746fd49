"""Deep adaptation network: mean embeddings of the features under several kernels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bures.arrays import check_choice, full_precision
from bures.methods._gaussian import MULTIPLES, gaussian_blocks, mean_squared_distance, mixture, read_multiples
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register

__all__ = ["MultiKernelMMDTerm", "dan"]

ESTIMATORS = ("biased", "unbiased", "linear")


@register("dan", matches="marginal", paper="Long et al., ICML 2015", cost="n²d, or nd linear")
def dan(
    *,
    weight: float = 1.0,
    estimator: str = "biased",
    multiples: Sequence[float] = MULTIPLES,
    start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Kernel means of the features, under several kernels: :math:`CE + \lambda\, \mathrm{MMD}_k^2(Z_s, Z_t)`.

    Long, Cao, Wang and Jordan, "Learning transferable features with deep adaptation networks", ICML 2015, with
    :math:`k = \frac1J \sum_j \exp(-\|x-y\|^2 / (\beta_j \sigma^2))`, :math:`\sigma^2` the mean squared distance of the
    pooled batch and :math:`\beta_j` the ``multiples``. The publication takes many widths around the median distance,
    fits the weights of the kernels to the data by a quadratic program, and applies ``estimator="linear"`` to several
    layers with :math:`\lambda = 1` and less. From the authors' later programs: five widths from a quarter to four
    times the mean. Ours: equal weights that sum to one (those programs sum the kernels, so that their
    :math:`\lambda` is five times as much), one layer, the features, and the estimator of least variance. ``"biased"``
    is never negative; ``"unbiased"`` and ``"linear"`` are negative for about half of all batches without a shift.
    """
    return Method("dan", [MultiKernelMMDTerm(Schedule(weight, start, ramp), estimator, multiples)])


class MultiKernelMMDTerm(Term):
    """The squared MMD of the features by one of three estimators."""

    capturable = True

    def __init__(self, schedule: Schedule, estimator: str, multiples: Sequence[float]) -> None:
        super().__init__("mmd", schedule)
        check_choice("estimator", estimator, ESTIMATORS)
        self.estimator, self.multiples = estimator, read_multiples(multiples)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        z_s, z_t = batch.z_s, batch.z_t
        n, m = len(z_s), len(z_t)
        if self.estimator != "biased" and min(n, m) < 2:
            raise ValueError(
                f"a batch has {n} source and {m} target samples; estimator={self.estimator!r} needs two of each, "
                "accepted for fewer is 'biased'"
            )
        with full_precision(z_s):
            if self.estimator == "linear":
                return linear_time_mmd(z_s, z_t, self.multiples)
            blocks = gaussian_blocks(z_s, z_t, self.multiples)
            # The diagonals hold k(x, x) - 1 = 0, so that leaving them out changes the number of pairs alone.
            lost = 1 if self.estimator == "unbiased" else 0
            within = blocks.ss.sum() / (n * (n - lost)) + blocks.tt.sum() / (m * (m - lost))
            return within - 2 * blocks.ts.mean()


def linear_time_mmd(z_s: Tensor, z_t: Tensor, multiples: Sequence[float]) -> Tensor:
    r"""Mean over pairs of neighbours of :math:`k(s, s') + k(t, t') - k(s, t') - k(s', t)`, in O(nd).

    Gretton et al., "A kernel two-sample test", JMLR 2012, lemma 14. Samples without a partner are left out.
    """
    width, pairs = mean_squared_distance(z_s, z_t), min(len(z_s), len(z_t)) // 2
    (s, s2), (t, t2) = ((z[0 : 2 * pairs : 2], z[1 : 2 * pairs : 2]) for z in (z_s, z_t))

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return mixture((x - y).square().sum(dim=1), width, multiples)

    return (kernel(s, s2) + kernel(t, t2) - kernel(s, t2) - kernel(s2, t)).mean()
