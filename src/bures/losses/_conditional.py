"""Losses over features and labels: CKB, CKW, and the class means alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bures.arrays import LOSS_NAMES, check_choice, check_flags, check_tensors, full_precision
from bures.cuda_graphs import GraphCache
from bures.kernels import BANDWIDTH_RULES, Bandwidth, Kernel
from bures.losses._loss import Loss, looks_at_values
from bures.metrics._ckw import mean_term
from bures.metrics._mmd import ONE_RKHS_RULES
from bures.metrics._problem import ConditionalProblem, check_options, conditional_problem
from bures.metrics._small_batch import is_ordinary, small_batch_distance

__all__ = ["CKBLoss", "CKWLoss", "ClassMeansLoss", "ConditionalLoss"]


class ConditionalLoss(Loss):
    """Options and call of the losses over features and labels."""

    bandwidth_rules: tuple[str, ...] = BANDWIDTH_RULES
    parts: tuple[str, ...] = ("covariances",)
    """What is compared: "covariances", "means" of classes, or both."""

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
        check_flags(cuda_graphs=cuda_graphs)
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
        self._ordinary = pseudo_labels == "soft" and is_ordinary(self.options)
        self._graphs = GraphCache()

    def forward(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Tensor:
        """Squared distance of a source and a target batch."""
        check_tensors(LOSS_NAMES, (z_s, y_s, z_t, p_t))
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
        named = options["method"] in ("auto", "polar") and not any(looks_at_values(rule) for rule in rules)
        return named and (options["prior"] is None or isinstance(options["prior"], str))

    def _can_capture(self, z_s: Tensor) -> bool:
        return self.capturable and (self.options["method"] == "polar" or z_s.dtype != torch.float64)

    def _distance(self, z_s: Tensor, y_s: Tensor, z_t: Tensor, p_t: Tensor) -> Tensor:
        with full_precision(z_s):

            def reference(a: Tensor, b: Tensor) -> Tensor:
                return self._by_terms(self._problem(a, y_s, b, p_t))

            if self._ordinary:
                small = small_batch_distance(z_s, y_s, z_t, p_t, self.options, self.parts, reference)
                if small is not None:
                    return small
            problem = self._problem(z_s, y_s, z_t, p_t)
            return problem.squared_distance() if self.parts == ("covariances",) else self._by_terms(problem)

    def _by_terms(self, problem: ConditionalProblem) -> Tensor:
        terms = []
        if "covariances" in self.parts:
            terms.append(problem.terms().squared_distance)
        if "means" in self.parts:
            terms.append(mean_term(problem))
        return sum(terms[1:], terms[0])

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
            names=LOSS_NAMES,
            **self.options,
        )


class CKBLoss(ConditionalLoss):
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


class CKWLoss(ConditionalLoss):
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
    parts = ("covariances", "means")


class ClassMeansLoss(ConditionalLoss):
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
    parts = ("means",)
