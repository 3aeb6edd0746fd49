"""The distances as ``nn.Module`` losses, with the defaults of the paper's training.

Two kinds of call. Losses that need labels take ``(z_s, y_s, z_t, p_t)``: source features, source labels (integers or
a matrix), target features, target probabilities. Losses that compare features only take ``(z_s, z_t)``. Each is the
pure function of the same name with its options stored; each returns a squared distance of at least float32, also
under autocast and for bfloat16 features.

Under ``torch.compile`` the losses trace into one graph (checked with torch 2.15, ``fullgraph=True``) when target
labels are probabilities; values are then not checked, shapes are. Two integer label vectors, the ``"median"``
bandwidth and weights of the unbiased MMD depend on values and break the graph; so do all of them with torch 2.4, whose
compiler knows less, with the same values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bures.arrays import Names, check_choice, check_tensors, full_precision
from bures.cuda_graphs import GraphCache
from bures.kernels import BANDWIDTH_RULES, Bandwidth, Kernel, check_bandwidth, check_kernel
from bures.labels import read_labels
from bures.metrics import bures, kernel_bures, mmd
from bures.metrics._ckw import mean_term
from bures.metrics._mmd import ONE_RKHS_RULES
from bures.metrics._problem import ConditionalProblem, check_options, conditional_problem
from bures.metrics._small_batch import is_ordinary, small_batch_ckb

__all__ = ["BuresLoss", "CKBLoss", "CKWLoss", "ClassMeansLoss", "KernelBuresLoss", "MMDLoss"]


NAMES = Names("z_s", "y_s", "z_t", "p_t")


def _looks_at_values(rule: object) -> bool:
    """Whether a kernel or a bandwidth decides by the values of samples, on the host."""
    return callable(rule) or rule == "median"


class _Loss(nn.Module):
    """A loss that stores the options of a metric and shows them in its repr."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can replay the loss in float32."""
        return not any(_looks_at_values(rule) for rule in self.options.values())

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class _ConditionalLoss(_Loss):
    """Options and call of the losses over features and labels."""

    bandwidth_rules: tuple[str, ...] = BANDWIDTH_RULES

    def __init__(
        self,
        *,
        pseudo_labels: str = "soft",
        kernel: Kernel = "gaussian",
        bandwidth: Bandwidth = "shared",
        label_kernel: Kernel = "gaussian",
        label_bandwidth: Bandwidth = "mean",
        eps: str | float = 1e-2,
        prior: Any = None,
        method: str = "auto",
        cuda_graphs: bool = True,
    ) -> None:
        check_choice("pseudo_labels", pseudo_labels, ("soft", "hard"))
        options: dict[str, Any] = {
            "kernel": kernel,
            "bandwidth": bandwidth,
            "label_kernel": label_kernel,
            "label_bandwidth": label_bandwidth,
            "eps": eps,
            "prior": prior,
            "method": method,
        }
        check_options(**options, bandwidth_rules=self.bandwidth_rules)
        super().__init__(**options)
        self.pseudo_labels = pseudo_labels
        self.cuda_graphs = cuda_graphs
        self._graphs = GraphCache()

    def forward(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Tensor:
        """Squared distance of a source and a target batch."""
        check_tensors(NAMES, (z_s, y_s, z_t, p_t))
        if self.cuda_graphs and z_s.is_cuda and self._can_capture(z_s):
            return self._graphs.run(self._distance, z_s, y_s, z_t, p_t.detach())
        return self._distance(z_s, y_s, z_t, p_t)

    @property
    def capturable(self) -> bool:
        """Whether nothing looks at values or copies from the host in float32, which a CUDA graph forbids.

        Medians, functions of the user's and decompositions do the one, class frequencies given as numbers the other.
        """
        options = self.options
        rules = [options[name] for name in ("kernel", "bandwidth", "label_kernel", "label_bandwidth")]
        named = options["method"] in ("auto", "polar") and not any(_looks_at_values(rule) for rule in rules)
        return named and (options["prior"] is None or isinstance(options["prior"], str))

    def _can_capture(self, z_s: Tensor) -> bool:
        return self.capturable and (self.options["method"] == "polar" or z_s.dtype != torch.float64)

    def _distance(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Tensor:
        with full_precision(z_s):
            return self._squared_distance(self._problem(z_s, y_s, z_t, p_t))

    def _squared_distance(self, problem: ConditionalProblem) -> Tensor:
        return problem.squared_distance()

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"pseudo_labels={self.pseudo_labels!r}, {super().extra_repr()}, cuda_graphs={self.cuda_graphs!r}"

    def _problem(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> ConditionalProblem:
        return conditional_problem(
            z_s,
            y_s,
            z_t,
            p_t,
            conditioning=("hard" if y_s.ndim == 1 else "soft", self.pseudo_labels),
            sample_weight_s=None,
            sample_weight_t=None,
            names=NAMES,
            **self.options,
        )


class CKBLoss(_ConditionalLoss):
    r"""Squared Conditional Kernel Bures distance as a training loss (the paper's :math:`\mathcal{L}_{CKB}`).

    Parameters
    ----------
    pseudo_labels : {"soft", "hard"}, optional
        Use the target probabilities as they are, or their most probable class.
    kernel, label_kernel, label_bandwidth, eps, prior, method
        As in `bures.ckb`.
    bandwidth : {"per-block", "shared", "median"} or float, optional
        As in `bures.ckb`; the default is the paper's training protocol, one bandwidth for each kernel matrix.
    cuda_graphs : bool, optional
        On a GPU, replay value and gradient as one CUDA graph once a shape has come up a few times. Replays do not
        check values: non-finite features give a non-finite loss instead of an error.

    See Also
    --------
    bures.ckb : the function.

    Notes
    -----
    ``forward(z_s, y_s, z_t, p_t)`` takes source features (n, d), source labels (n,) or (n, K), target features (m, d)
    and target probabilities (m, K), and gives Theorem 5 as a 0-d tensor. Labels and probabilities are constants: the
    gradient reaches the features only.

    Examples
    --------
    >>> import torch, bures
    >>> generator = torch.Generator().manual_seed(0)
    >>> z_s = torch.randn(40, 8, generator=generator, requires_grad=True)
    >>> z_t = torch.randn(30, 8, generator=generator, requires_grad=True)
    >>> y_s, p_t = torch.arange(40) % 3, torch.full((30, 3), 1 / 3)
    >>> loss = bures.CKBLoss()(z_s, y_s, z_t, p_t)
    >>> loss.backward()
    >>> bool(z_t.grad.isfinite().all())
    True
    """

    def __init__(
        self,
        *,
        pseudo_labels: str = "soft",
        kernel: Kernel = "gaussian",
        bandwidth: Bandwidth = "per-block",
        label_kernel: Kernel = "gaussian",
        label_bandwidth: Bandwidth = "mean",
        eps: str | float = 1e-2,
        prior: Any = None,
        method: str = "auto",
        cuda_graphs: bool = True,
    ) -> None:
        super().__init__(
            pseudo_labels=pseudo_labels,
            kernel=kernel,
            bandwidth=bandwidth,
            label_kernel=label_kernel,
            label_bandwidth=label_bandwidth,
            eps=eps,
            prior=prior,
            method=method,
            cuda_graphs=cuda_graphs,
        )
        self._ordinary = pseudo_labels == "soft" and is_ordinary(self.options)

    def _distance(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Tensor:
        if not self._ordinary:
            return super()._distance(z_s, y_s, z_t, p_t)
        with full_precision(z_s):

            def reference(a: Tensor, b: Tensor) -> Tensor:
                return self._problem(a, y_s, b, p_t).terms().squared_distance

            small = small_batch_ckb(z_s, y_s, z_t, p_t, self.options, reference)
            return self._problem(z_s, y_s, z_t, p_t).squared_distance() if small is None else small


class CKWLoss(_ConditionalLoss):
    r"""Squared conditional kernel Wasserstein distance as a training loss: CKB and the class means.

    Parameters
    ----------
    pseudo_labels : {"soft", "hard"}, optional
        Use the target probabilities as they are, or their most probable class.
    kernel, bandwidth, label_kernel, label_bandwidth, eps, prior, method
        As in `bures.ckw`.
    cuda_graphs : bool, optional
        As in `CKBLoss`.

    See Also
    --------
    bures.ckw : the function.

    Notes
    -----
    ``forward(z_s, y_s, z_t, p_t)`` as in `CKBLoss`. A class that a batch lacks is left out of the means without a
    warning: in small batches this is the rule.

    Examples
    --------
    >>> import torch, bures
    >>> z = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    >>> y = torch.arange(40) % 4
    >>> swapped = torch.nn.functional.one_hot((y + 1) % 4).float()
    >>> bool(bures.CKWLoss()(z, y, z, swapped) > 0.01)
    True
    """

    bandwidth_rules = ONE_RKHS_RULES

    def _squared_distance(self, problem: ConditionalProblem) -> Tensor:
        return problem.terms().squared_distance + mean_term(problem)


class ClassMeansLoss(_ConditionalLoss):
    r"""Squared distance of the conditional means as a training loss: CKW without its covariance part.

    Parameters
    ----------
    pseudo_labels : {"soft", "hard"}, optional
        Use the target probabilities as they are, or their most probable class.
    kernel, bandwidth, label_kernel, label_bandwidth, eps, prior, method
        As in `bures.ckw`.
    cuda_graphs : bool, optional
        As in `CKBLoss`.

    See Also
    --------
    bures.ckw : the function this is a part of.

    Notes
    -----
    ``forward(z_s, y_s, z_t, p_t)`` as in `CKBLoss`, giving :math:`\sum_c \pi_c \|\mu^s_c - \mu^t_c\|^2`.

    Examples
    --------
    >>> import torch, bures
    >>> z = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    >>> y = torch.arange(40) % 4
    >>> same = torch.nn.functional.one_hot(y).float()
    >>> bool(bures.ClassMeansLoss()(z, y, z, same).abs() < 1e-6)
    True
    """

    bandwidth_rules = ONE_RKHS_RULES

    def _squared_distance(self, problem: ConditionalProblem) -> Tensor:
        return mean_term(problem)


class KernelBuresLoss(_Loss):
    r"""Squared kernel Bures distance of two batches of features as a training loss.

    Parameters
    ----------
    kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        As in `bures.kernel_bures`.
    bandwidth : {"per-block", "shared", "median"} or float, optional
        As in `bures.kernel_bures`; the default is the paper's training protocol.

    See Also
    --------
    bures.kernel_bures : the function.

    Notes
    -----
    ``forward(z_s, z_t)`` with z_s (n, d) and z_t (m, d). Theorem 5 with B = I: the paper's ablation without labels.

    Examples
    --------
    >>> import torch, bures
    >>> z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    >>> bool(bures.KernelBuresLoss()(z, 3 * z) > 0.01)
    True
    """

    def __init__(self, *, kernel: Kernel = "gaussian", bandwidth: Bandwidth = "per-block") -> None:
        check_kernel(kernel)
        check_bandwidth(bandwidth)
        super().__init__(kernel=kernel, bandwidth=bandwidth)

    def forward(self, z_s: Tensor, z_t: Tensor) -> Tensor:
        """Squared kernel Bures distance of a source and a target batch."""
        loss: Tensor = kernel_bures(z_s, z_t, **self.options)
        return loss


class BuresLoss(_Loss):
    r"""Squared Bures distance of the covariances of two batches as a training loss.

    See Also
    --------
    bures.bures : the function.

    Notes
    -----
    ``forward(z_s, z_t)`` with z_s (n, d) and z_t (m, d); the paper's ablation without a kernel,
    :math:`d_B^2(\Sigma_s, \Sigma_t)`.

    Examples
    --------
    >>> import torch, bures
    >>> z = torch.tensor([[-1.0], [1.0]])
    >>> bures.BuresLoss()(z, 3 * z)
    tensor(4.)
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, z_s: Tensor, z_t: Tensor) -> Tensor:
        """Squared Bures distance of a source and a target batch."""
        loss: Tensor = bures(z_s, z_t)
        return loss


class MMDLoss(_Loss):
    r"""Squared MMD as a training loss: of the labels (the paper's :math:`\mathcal{L}_{MMD}`) or of two batches.

    Parameters
    ----------
    unbiased : bool, optional
        Use the U-statistic, which may be negative.
    kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        As in `bures.mmd`.
    bandwidth : {"shared", "median"} or float, optional
        As in `bures.mmd`: one bandwidth for the three blocks, or it would not be an MMD.

    See Also
    --------
    bures.mmd : the function.

    Notes
    -----
    ``forward(z_s, y_s, z_t, p_t)``, the call of the conditional losses, compares the labels: one-hot source labels
    with target probabilities, :math:`\|\Psi_s 1/n - \tilde\Psi_t 1/m\|^2`. The gradient flows through ``p_t``; the
    features are not used. ``forward(a, b)`` compares two batches (n, d) and (m, d) of anything.

    Examples
    --------
    >>> import torch, bures
    >>> z_s, y_s, z_t = torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), torch.zeros(2, 3)
    >>> balanced, one_sided = torch.eye(2), torch.tensor([[1.0, 0.0], [0.9, 0.1]], requires_grad=True)
    >>> loss = bures.MMDLoss()
    >>> bool(loss(z_s, y_s, z_t, balanced).abs() < 1e-6 < loss(z_s, y_s, z_t, one_sided))
    True
    >>> loss(z_s, y_s, z_t, one_sided).backward()
    >>> bool(one_sided.grad.isfinite().all())
    True
    """

    def __init__(self, *, unbiased: bool = False, kernel: Kernel = "gaussian", bandwidth: Bandwidth = "shared") -> None:
        check_kernel(kernel)
        check_bandwidth(bandwidth, rules=ONE_RKHS_RULES)
        super().__init__(unbiased=unbiased, kernel=kernel, bandwidth=bandwidth)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Squared MMD of two batches, or of the labels of a source and a target batch."""
        if len(tensors) == 2:
            return self._distance(*tensors)
        if len(tensors) != 4:
            raise TypeError(f"MMDLoss takes (z_s, y_s, z_t, p_t) or two batches, got {len(tensors)} arguments")
        check_tensors(NAMES, tensors)
        z_s, y_s, z_t, p_t = tensors
        for name, rows in (("z_s", z_s), ("z_t", z_t)):
            if not rows.shape or not len(rows):
                raise ValueError(
                    f"{name} has shape {tuple(rows.shape)}; accepted is a row for each sample, one or more"
                )
        if p_t.ndim != 2:
            raise ValueError(f"p_t has shape {tuple(p_t.shape)}; accepted are probabilities of shape (m, K)")
        # The labels are read as in the conditional losses, which checks them. Distances between probabilities can be
        # far below the rounding of float32 when predictions collapse, so they are compared in float64.
        kinds = ("hard" if y_s.ndim == 1 else "soft", "soft")
        labels, _ = read_labels(y_s, p_t, kinds, len(z_s), len(z_t), like=p_t, names=NAMES)
        return self._distance(labels.membership(), p_t.double()).to(torch.promote_types(p_t.dtype, torch.float32))

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        loss: Tensor = mmd(a, b, **self.options)
        return loss
