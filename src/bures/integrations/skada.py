"""The Conditional Kernel Bures loss inside skada's deep methods.

Needs the extra ``skada``: ``pip install 'bures[skada]'``. `CKBLoss` goes where skada's own adaptation losses go, and
`DeepCKB` builds a network of skada's as ``skada.deep.DeepCoral`` and its relatives do. Importing skada switches on
scikit-learn's metadata routing for the whole process; this module does not undo it.

skada's shallow tools need nothing of this module: `bures.CKBClassifier` and `bures.CKBAdapter` fit into its splitters,
scorers and pipelines as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bures import losses
from bures.arrays import check_choice, check_not_negative
from bures.kernels import Bandwidth
from bures.methods._terms import prediction_entropy

try:
    from skada.deep.base import (
        BaseDALoss,
        DomainAwareCriterion,
        DomainAwareModule,
        DomainAwareNet,
        DomainBalancedDataLoader,
    )
except ImportError as error:
    raise ImportError(
        "bures.integrations.skada needs skada and skorch; install the extra: pip install 'bures[skada]'"
    ) from error

__all__ = ["CKBLoss", "DeepCKB"]

PREDICTIONS = ("logits", "probabilities")


class CKBLoss(BaseDALoss):  # type: ignore[misc]
    r"""Squared Conditional Kernel Bures distance as an adaptation loss of skada, with the entropy of predictions.

    Parameters
    ----------
    entropy : float, optional
        Weight of the mean entropy of the target's predictions beside the distance. In skada's criterion
        :math:`CE + r (CKB + \alpha Ent)` the paper's weights are :math:`\lambda_2 = r` and
        :math:`\lambda_1 = r \alpha`.
    predictions : {"logits", "probabilities"}, optional
        What the network gives: logits, as for ``torch.nn.CrossEntropyLoss``, or probabilities.
    pseudo_labels, bandwidth, eps : optional
        As in `bures.CKBLoss`.

    Notes
    -----
    skada calls it as ``forward(y_s=..., y_pred_t=..., features_s=..., features_t=..., ...)``. Source labels are
    integers from 0 to K - 1, K the columns of the predictions, which are the target's labels: true ones are never
    asked for.

    Examples
    --------
    >>> import torch, bures
    >>> from bures.integrations.skada import CKBLoss
    >>> generator = torch.Generator().manual_seed(0)
    >>> z_s, z_t = torch.randn(20, 4, generator=generator), 2 * torch.randn(16, 4, generator=generator)
    >>> y_s, logits = torch.arange(20) % 3, torch.randn(16, 3, generator=generator)
    >>> loss = CKBLoss()(y_s=y_s, y_pred_t=logits, features_s=z_s, features_t=z_t)
    >>> torch.equal(loss, bures.CKBLoss()(z_s, y_s, z_t, logits.softmax(dim=1)))
    True
    """

    def __init__(
        self,
        entropy: float = 0.0,
        *,
        predictions: str = "logits",
        pseudo_labels: str = "soft",
        bandwidth: Bandwidth = "per-block",
        eps: str | float = 1e-2,
    ) -> None:
        super().__init__()
        check_choice("predictions", predictions, PREDICTIONS)
        self.entropy, self.predictions = check_not_negative("entropy", entropy), predictions
        self.distance = losses.CKBLoss(pseudo_labels=pseudo_labels, bandwidth=bandwidth, eps=eps)

    def forward(
        self, y_s: Tensor, y_pred_t: Tensor, features_s: Tensor | None, features_t: Tensor | None, **unused: Any
    ) -> Tensor:
        """The loss of a batch."""
        if features_s is None or features_t is None:
            raise ValueError(
                "features_s or features_t is None: the network was built without layer_name; name the layer whose "
                "output is aligned, as in DeepCKB(module, layer_name=...)"
            )
        # Probabilities are logits up to a constant once their logarithm is taken.
        logits = y_pred_t if self.predictions == "logits" else y_pred_t.clamp_min(1e-30).log()
        loss: Tensor = self.distance(features_s, y_s.long(), features_t, logits.softmax(dim=1))
        return loss + self.entropy * prediction_entropy(logits) if self.entropy > 0 else loss

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"entropy={self.entropy!r}, predictions={self.predictions!r}"


def DeepCKB(  # noqa: N802 - skada's factories are named like classes
    module: Any,
    layer_name: str,
    reg: float = 1.0,
    entropy: float = 0.5,
    base_criterion: nn.Module | None = None,
    *,
    predictions: str = "logits",
    pseudo_labels: str = "soft",
    bandwidth: Bandwidth = "per-block",
    eps: str | float = 1e-2,
    **net_options: Any,
) -> Any:
    r"""Network of skada that is trained with the paper's objective, :math:`CE + r (CKB + \alpha Ent)`.

    Parameters
    ----------
    module : nn.Module
        The network, whose output is (n, K).
    layer_name : str
        Name of the layer whose output is aligned, flattened to (n, d), as in ``module.named_modules()``.
    reg : float, optional
        Weight r of what both domains add to the cross-entropy.
    entropy : float, optional
        :math:`\alpha`; 0.5 with ``reg=1`` is the paper's choice.
    base_criterion : nn.Module, optional
        Loss of the source's predictions; None is ``torch.nn.CrossEntropyLoss()``.
    predictions, pseudo_labels, bandwidth, eps : optional
        As in `CKBLoss`.
    **net_options
        Of ``skada.deep.base.DomainAwareNet``, a ``skorch.NeuralNetClassifier``: ``max_epochs``, ``batch_size``, ``lr``,
        ``optimizer``, ``train_split``, ``verbose``, ...

    Returns
    -------
    skada.deep.base.DomainAwareNet
        Not fitted; ``fit(X, y, sample_domain)`` trains it. In a step there are ``batch_size`` rows of each domain;
        skada leaves out the rest of a domain, so that a domain of fewer rows than ``batch_size`` trains nothing.

    Examples
    --------
    >>> import bures, torch
    >>> import numpy as np
    >>> from bures.integrations.skada import DeepCKB
    >>> from skada.deep.modules import ToyModule2D
    >>> xs, ys, xt, _ = bures.data.drifting_class(60)
    >>> X, y = np.concatenate([xs, xt]).astype(np.float32), np.concatenate([ys, np.full(60, -1)])
    >>> domain = np.repeat([1, -2], 60)
    >>> _ = torch.manual_seed(0)
    >>> net = DeepCKB(ToyModule2D(n_classes=3), "dropout", batch_size=20, max_epochs=2, train_split=None, verbose=0)
    >>> net.fit(X, y, sample_domain=domain).predict(X, sample_domain=domain).shape
    (60,)
    """
    if isinstance(module, nn.Module):
        layers = [name for name, _ in module.named_modules() if name]
        if layer_name not in layers:
            raise ValueError(f"layer_name={layer_name!r} is no layer of module; accepted are {', '.join(layers)}")
    criterion = CKBLoss(entropy, predictions=predictions, pseudo_labels=pseudo_labels, bandwidth=bandwidth, eps=eps)
    return DomainAwareNet(
        module=DomainAwareModule,
        module__base_module=module,
        module__layer_name=layer_name,
        iterator_train=DomainBalancedDataLoader,
        criterion=DomainAwareCriterion,
        criterion__base_criterion=torch.nn.CrossEntropyLoss() if base_criterion is None else base_criterion,
        criterion__reg=reg,
        criterion__adapt_criterion=criterion,
        **net_options,
    )
