"""Entropic optimal transport of the source rows, without classes and with a class regulariser; solved by POT."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import OneToOneFeatureMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from bures.arrays import check_count, check_positive
from bures.estimators._base import DomainAdapter, Floats, class_codes
from bures.methods._transport import import_pot

__all__ = ["OTIT", "OTClassReg"]

MARGINAL_TOLERANCE = 1e-2
"""A coupling whose marginals are off by more than this share in the mean is reported."""

EXPONENT = 300.0
"""Up to this cost in units of the regulariser, exp(-cost) and the scalings keep clear of the ends of float64.

There Sinkhorn's iteration is a product with a matrix: the same in exact arithmetic, and several times as fast.
"""

SMOOTHING = 1e-3
"""Added to the mass of a class under the root, as POT does: the root has no tangent at zero."""


class OTIT(OneToOneFeatureMixin, DomainAdapter):  # type: ignore[misc]
    r"""Entropic optimal transport (OT-IT): moves each source row to the target rows it is coupled with.

    Parameters
    ----------
    reg : float, optional
        Weight of the entropy, in units of the mean squared distance between source and target rows, each centred: the
        same value suits features of any scale and offset, and the iteration stays clear of underflow.
    max_iter : int, optional
        Sinkhorn iterations at most.
    tol : float, optional
        Error of the marginals at which the iteration ends.

    Attributes
    ----------
    coupling_ : array (n, m)
        The transport plan.
    reg_ : float
        The weight of the entropy in the units of the data.
    n_iter_ : int
        Iterations that were run.

    Notes
    -----
    With :math:`M_{ij} = \|x^s_i - x^t_j\|^2` and uniform weights,

    .. math::
        \gamma = \arg\min_\gamma \langle \gamma, M \rangle + \mathrm{reg} \sum_{ij} \gamma_{ij} \log \gamma_{ij} ,
        \qquad x^s_i \mapsto \sum_j \gamma_{ij} x^t_j \Big/ \sum_j \gamma_{ij} .

    The plan is that of POT's ``SinkhornTransport``, found in the log domain where exponentials could underflow. It does
    not depend on the means of the domains, which are subtracted first. It extends to rows that were not fitted by the
    dual potential: the same average, with weights proportional to :math:`v_j \exp(-\|x - x^t_j\|^2/\mathrm{reg})` [2]_.
    Target rows stay as they are. Needs POT: ``pip install 'bures[ot]'``.

    References
    ----------
    .. [1] N. Courty, R. Flamary, D. Tuia and A. Rakotomamonjy, "Optimal Transport for Domain Adaptation", IEEE
       Transactions on Pattern Analysis and Machine Intelligence 39(9), 2017, pp. 1853-1865.
    .. [2] A.-A. Pooladian and J. Niles-Weed, "Entropic Estimation of Optimal Transport Maps", arXiv:2109.12004, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import OTIT
    >>> xs = np.array([[0.0], [1.0]])
    >>> OTIT(reg=0.02).fit_source_target(xs, None, xs + 10).transform(xs, sample_domain=1).round(2)
    array([[10.],
           [11.]])
    """

    def __init__(self, reg: float = 0.05, *, max_iter: int = 1000, tol: float = 1e-6) -> None:
        self.reg = reg
        self.max_iter = max_iter
        self.tol = tol

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        import_pot(type(self).__name__)
        reg, unit = check_positive("reg", self.reg), _mean_cost(xs, xt)
        max_iter, tol = check_count("max_iter", self.max_iter), check_positive("tol", self.tol)
        self.reg_ = reg * unit
        # A common offset of one domain changes no plan, and would cost digits.
        self._mean_s, self._mean_t = xs.mean(axis=0), xt.mean(axis=0)
        self._target_rows = xt - self._mean_t
        self.coupling_, self._log_v, self.n_iter_ = _entropic_plan(
            xs - self._mean_s, self._target_rows, self.reg_, max_iter, tol
        )
        _check_marginals(self.coupling_)

    def _map_source(self, x: Floats) -> Floats:
        distances = euclidean_distances(x - self._mean_s, self._target_rows, squared=True)
        return np.asarray(softmax(self._log_v - distances / self.reg_, axis=1) @ self._target_rows + self._mean_t)


class OTClassReg(OneToOneFeatureMixin, DomainAdapter):  # type: ignore[misc]
    r"""Entropic optimal transport with a class regulariser: target rows receive from source rows of one class.

    Parameters
    ----------
    reg : float, optional
        Weight of the entropy, in units of the mean squared distance between source and target rows, each centred.
    reg_class : float, optional
        Weight of the class regulariser, in the same unit.
    max_iter : int, optional
        Linearisations of the regulariser.
    max_inner_iter : int, optional
        Sinkhorn iterations for each at most.
    tol : float, optional
        Error of the marginals at which an inner iteration ends.

    Attributes
    ----------
    coupling_ : array (n, m)
        The transport plan.
    reg_ : float
        The weight of the entropy in the units of the data.
    n_iter_ : int
        Linearisations that were run.

    Notes
    -----
    With :math:`I_c` the source rows of class c, the problem of `OTIT` plus

    .. math:: \mathrm{reg\_class} \sum_j \sum_c \Big( \sum_{i \in I_c} \gamma_{ij} \Big)^{1/2} ,

    solved as POT's ``SinkhornLpl1Transport`` does, by POT's Sinkhorn iteration for one linearisation of the regulariser
    after the other, in memory for n m numbers. A source row goes to the average
    of the target rows it is coupled with; a row that was not fitted moves like the fitted row nearest to it. Target
    rows stay as they are. Needs POT: ``pip install 'bures[ot]'``.

    References
    ----------
    .. [1] N. Courty, R. Flamary, D. Tuia and A. Rakotomamonjy, "Optimal Transport for Domain Adaptation", IEEE
       Transactions on Pattern Analysis and Machine Intelligence 39(9), 2017, pp. 1853-1865.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.estimators import OTClassReg
    >>> xs = np.array([[0.0], [1.0], [2.0]])
    >>> OTClassReg().fit_source_target(xs, ["a", "b", "b"], xs + 10).transform(xs, sample_domain=1).round(0)
    array([[10.],
           [11.],
           [12.]])
    """

    _needs_classes = True

    def __init__(
        self,
        reg: float = 0.05,
        reg_class: float = 0.1,
        *,
        max_iter: int = 10,
        max_inner_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.reg = reg
        self.reg_class = reg_class
        self.max_iter = max_iter
        self.max_inner_iter = max_inner_iter
        self.tol = tol

    def _fit_domains(self, xs: Floats, ys: NDArray[Any] | None, xt: Floats) -> None:
        import_pot(type(self).__name__)
        assert ys is not None
        unit = _mean_cost(xs, xt)
        self.reg_ = check_positive("reg", self.reg) * unit
        self.n_iter_ = check_count("max_iter", self.max_iter)
        self.coupling_ = _class_regularised_plan(
            xs - xs.mean(axis=0),
            class_codes(ys)[1],
            xt - xt.mean(axis=0),
            reg=self.reg_,
            reg_class=check_positive("reg_class", self.reg_class) * unit,
            max_iter=self.n_iter_,
            max_inner_iter=check_count("max_inner_iter", self.max_inner_iter),
            tol=check_positive("tol", self.tol),
        )
        _check_marginals(self.coupling_)
        self._source_rows = xs
        self._displacement = _barycentres(self.coupling_, xt) - xs

    def _map_source(self, x: Floats) -> Floats:
        if np.array_equal(x, self._source_rows):  # equal rows of different classes go to different places
            return np.asarray(x + self._displacement)
        nearest = euclidean_distances(x, self._source_rows, squared=True).argmin(axis=1)
        return np.asarray(x + self._displacement[nearest])


@contextmanager
def _without_warnings_of_pot() -> Iterator[None]:
    """POT warns of an inner iteration that ended early even where the next one mends it: the plan is looked at."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sinkhorn did not converge", category=UserWarning)
        yield


@_without_warnings_of_pot()
def _entropic_plan(xs: Floats, xt: Floats, reg: float, max_iter: int, tol: float) -> tuple[Floats, Floats, int]:
    """The plan (n, m), the potential of the target (m,), and the iterations; by products of matrices where it is safe.

    The potential is given as its logarithm.
    """
    from ot import dist, sinkhorn

    cost = dist(xs, xt)
    weights = [np.full(n, 1 / n) for n in cost.shape]
    safe = cost.max() <= EXPONENT * reg
    method = "sinkhorn" if safe else "sinkhorn_log"
    plan, log = sinkhorn(*weights, cost, reg, method=method, numItermax=max_iter, stopThr=tol, log=True)
    log_v = np.log(log["v"]) if safe else np.asarray(log["log_v"])
    return np.asarray(plan), log_v, int(log["niter"]) + 1


@_without_warnings_of_pot()
def _class_regularised_plan(
    xs: Floats,
    codes: NDArray[np.int64],
    xt: Floats,
    *,
    reg: float,
    reg_class: float,
    max_iter: int,
    max_inner_iter: int,
    tol: float,
) -> Floats:
    """Majorisation of the class regulariser: its tangent at the last plan joins the cost, and Sinkhorn gives the next.

    What POT's ``SinkhornLpl1Transport`` computes, without its array of plans by class (n, m, K).
    """
    from ot import dist, sinkhorn

    cost = dist(xs, xt)
    weights = [np.full(n, 1 / n) for n in cost.shape]
    members = np.eye(codes.max() + 1)[:, codes]  # (K, n)
    tangent = 0.0
    for _ in range(max_iter):
        plan = sinkhorn(*weights, cost + tangent, reg, numItermax=max_inner_iter, stopThr=tol)
        mass = members @ plan  # of each class at each target row
        tangent = members.T @ (reg_class / 2 / np.sqrt(mass + SMOOTHING))
    return np.asarray(plan)


def _check_marginals(plan: Floats) -> None:
    """Warn where a plan (n, m) is none."""
    error = max(np.abs(plan.sum(axis=a) * plan.shape[1 - a] - 1).mean() for a in (0, 1))
    if not error <= MARGINAL_TOLERANCE:
        warnings.warn(
            f"the marginals of the transport plan are off by {error:.1%} in the mean; "
            "raise max_iter (or max_inner_iter), or raise reg",
            ConvergenceWarning,
            stacklevel=5,
        )


def _barycentres(coupling: Floats, xt: Floats) -> Floats:
    """Where each source row goes (n, d); the mean of the target for a row whose mass underflowed."""
    mass = coupling.sum(axis=1, keepdims=True)
    share = np.divide(coupling, mass, out=np.full_like(coupling, 1 / len(xt)), where=mass > 0)
    return np.asarray(share @ xt)


def _mean_cost(xs: Floats, xt: Floats) -> float:
    """Mean squared distance between centred source and target rows, from their variances; 1 where nothing varies."""
    cost = float(xs.var(axis=0).sum() + xt.var(axis=0).sum())
    return cost if cost > 0 else 1.0
