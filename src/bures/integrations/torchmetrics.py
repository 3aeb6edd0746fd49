r"""The Conditional Kernel Bures metric for torchmetrics: updated batch by batch, summed over processes.

Needs the extra ``torchmetrics``: ``pip install 'bures[torchmetrics]'``.

torchmetrics sums states over processes without a look at them, so these are plain sums: of the weights, of features
:math:`f` and label features :math:`g`, and of their products,

.. math:: W = \sum 1, \quad \sum f, \quad \sum g, \quad \sum f f^\top, \quad \sum g f^\top, \quad \sum g g^\top ,

in float64. Sums that are not centred lose digits where the mean is large beside the spread. Here the features are
counted from the origin of the feature map, which is near the mean of the sample the map was fitted on and the same in
every process: an offset common to all samples is gone before anything is squared.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from bures.arrays import Array
from bures.factors import check_eps
from bures.feature_maps import FeatureMap
from bures.kernels import Bandwidth
from bures.moments import ConditionalMoments
from bures.moments._compare import check_label_options
from bures.moments._scatter import Scatter

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "bures.integrations.torchmetrics needs torchmetrics; install the extra: pip install 'bures[torchmetrics]'"
    ) from error

__all__ = ["ConditionalKernelBures"]

SIDES = ("source", "target")
PRODUCTS = {"xx": ("mean_x", "mean_x"), "yx": ("mean_y", "mean_x"), "yy": ("mean_y", "mean_y")}
COUNTS = ("n_samples", "n_weighted", "n_chunks")


class ConditionalKernelBures(Metric):
    """Squared Conditional Kernel Bures distance of two domains, with states that are summed over processes.

    Parameters
    ----------
    feature_map : FeatureMap
        `bures.NystroemMap`, `bures.RandomFourierMap` or `bures.LinearMap`, fitted on samples of both domains before
        the metric is used, and the same in every process.
    n_classes : int
        Number of classes K.
    source_labels, target_labels : {"hard", "soft"}, optional
        Classes 0 to K - 1, or rows of K probabilities, which have the linear kernel.
    eps, label_kernel, label_bandwidth : optional
        As in `bures.ConditionalMoments.ckb`.
    **metric_options
        Of ``torchmetrics.Metric``, such as ``sync_on_compute``.

    Notes
    -----
    ``update(z_s, y_s, z_t, y_t)`` adds a batch of both domains, of any sizes; None for both arguments of a domain adds
    the other alone. ``compute()`` gives a 0-d tensor in float64, the distance of all samples of all processes; it
    equals `bures.ConditionalMoments.ckb` on the same samples, up to the rounding of sums. A batch that is refused
    changes nothing. There is no gradient: for training use `bures.CKBLoss`.

    Examples
    --------
    >>> import torch, bures
    >>> from bures.integrations.torchmetrics import ConditionalKernelBures
    >>> generator = torch.Generator().manual_seed(0)
    >>> z_s, z_t = torch.randn(300, 4, generator=generator), 2 * torch.randn(300, 4, generator=generator)
    >>> y = torch.arange(300) % 3
    >>> metric = ConditionalKernelBures(bures.NystroemMap.fit(z_s, z_t, n_landmarks=50), n_classes=3)
    >>> for rows in torch.arange(300).split(100):
    ...     metric.update(z_s[rows], y[rows], z_t[rows], y[rows])
    >>> round(float(metric.compute()), 2)
    0.13
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    plot_lower_bound = 0.0

    def __init__(
        self,
        feature_map: FeatureMap,
        n_classes: int,
        *,
        source_labels: Literal["hard", "soft"] = "hard",
        target_labels: Literal["hard", "soft"] = "hard",
        eps: str | float = 1e-2,
        label_kernel: str | None = None,
        label_bandwidth: Bandwidth | None = None,
        **metric_options: Any,
    ) -> None:
        super().__init__(**metric_options)
        check_eps(eps)
        self.feature_map, self.n_classes = feature_map, n_classes
        self.kinds = {"source": source_labels, "target": target_labels}
        self.options = {"eps": eps, "label_kernel": label_kernel, "label_bandwidth": label_bandwidth}
        for side in SIDES:
            empty = self._moments(side, torch.device("cpu"))
            check_label_options(empty, label_kernel, label_bandwidth)
            for name, tensor in empty.scatter.tensors().items():
                self.add_state(f"{side}_{name}", default=tensor, dist_reduce_fx="sum")
            for name in COUNTS:
                self.add_state(f"{side}_{name}", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, z_s: Array | None = None, y_s: Array | None = None, z_t: Array | None = None, y_t: Array | None = None
    ) -> None:
        """Add a batch.

        Parameters
        ----------
        z_s, y_s : array (n, d), (n,) or (n, K), optional
            Source features and labels.
        z_t, y_t : array (m, d), (m,) or (m, K), optional
            Target features and labels.
        """
        batch: dict[str, ConditionalMoments] = {}
        for side, letter, z, y in (("source", "s", z_s, y_s), ("target", "t", z_t, y_t)):
            if (z is None) != (y is None):
                missing, given = ("z", "y") if z is None else ("y", "z")
                raise ValueError(f"{missing}_{letter} is None but {given}_{letter} is not; accepted are both, or none")
            if z is not None and y is not None:
                try:
                    batch[side] = self._moments(side, self._place).update(_detached(z), _detached(y))
                except (TypeError, ValueError) as error:
                    raise type(error)(f"z_{letter}, y_{letter}: {error}") from error
        for side, moments in batch.items():  # only when both are known to be good
            for name, change in _about_origin(moments.scatter).items():
                getattr(self, f"{side}_{name}").add_(change)
            for name in COUNTS:
                getattr(self, f"{side}_{name}").add_(getattr(moments, name))

    def compute(self) -> Tensor:
        """The squared distance of all samples so far, a 0-d tensor in float64."""
        s, t = (self.moments(side) for side in SIDES)
        return torch.tensor(s.ckb(t, **self.options), dtype=torch.float64, device=self._place)  # type: ignore[arg-type]

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw the distance, or several of them, as torchmetrics draws its own metrics.

        Parameters
        ----------
        val : Tensor or sequence of Tensor, optional
            What `compute` or `forward` returned, once or at several times; None calls `compute`.
        ax : matplotlib Axes, optional
            Where to draw; None makes a figure.

        Returns
        -------
        tuple of Figure and Axes
        """
        return self._plot(val, ax)

    def moments(self, side: str) -> ConditionalMoments:
        """The moments of a domain, for the other distances and the bound.

        Parameters
        ----------
        side : {"source", "target"}

        Returns
        -------
        ConditionalMoments
            Of this process' samples, or of all while the metric is synchronised.
        """
        if side not in SIDES:
            raise ValueError(f"side={side!r} is unknown; accepted are 'source' and 'target'")
        moments = self._moments(side, self._place)
        sums = {name: getattr(self, f"{side}_{name}").double() for name in moments.scatter.tensors()}
        moments.scatter = _about_mean(sums)
        for name in COUNTS:
            setattr(moments, name, int(getattr(self, f"{side}_{name}")))
        return moments

    @property
    def _place(self) -> torch.device:
        place: torch.device = self.source_xx.device  # type: ignore[assignment]
        return place

    def _moments(self, side: str, device: torch.device) -> ConditionalMoments:
        """Moments of no samples."""
        if isinstance(self.feature_map, FeatureMap) and self.feature_map.device != device:
            self.feature_map = self.feature_map.to(device)  # once: the states stay where they are
        return ConditionalMoments(self.feature_map, self.n_classes, labels=self.kinds[side])


def _detached(values: Array) -> Array:
    return values.detach() if isinstance(values, Tensor) else values


def _about_origin(scatter: Scatter) -> dict[str, Tensor]:
    """Plain sums, under the names of the means and centred sums they are made from."""
    sums = scatter.tensors() | {name: scatter.weight * getattr(scatter, name) for name in ("mean_x", "mean_y")}
    for name, (left, right) in PRODUCTS.items():
        sums[name] = torch.addr(getattr(scatter, name), sums[left], getattr(scatter, right))
    return sums


def _about_mean(sums: dict[str, Tensor]) -> Scatter:
    """Means and centred sums from plain sums."""
    share = torch.where(sums["weight"] > 0, 1 / sums["weight"], 0.0)
    found = sums | {name: sums[name] * share for name in ("mean_x", "mean_y")}
    for name, (left, right) in PRODUCTS.items():
        found[name] = torch.addr(sums[name], sums[left], found[right], alpha=-1)
    return Scatter(**found)
