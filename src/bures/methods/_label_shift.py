"""The label term of joint matching, aware that class frequencies may differ between the domains."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bures.arrays import check_flags, full_precision
from bures.methods._method import Batch, Schedule, Term
from bures.metrics import mmd
from bures.shift._priors import class_weights

__all__ = ["LabelMMDTerm"]

MOMENTUM = 0.95  # of the running frequencies: some twenty batches, while predictions still change


class LabelMMDTerm(Term):
    r"""MMD between source labels and target predictions, in one RKHS.

    Matched as they are, the class frequencies of the source are forced upon the target's predictions: with
    frequencies :math:`\pi_s \ne \pi_t` at least the total variation :math:`\tfrac12 \|\pi_s - \pi_t\|_1` of the target
    must then be predicted wrongly. With ``label_shift`` the source labels are weighted to the target's class
    frequencies first, as estimated from predictions by black-box shift estimation, so that what is matched is the
    distribution of predictions that a classifier with its errors on the source would give there.

    Parameters
    ----------
    schedule : Schedule
        The weight of the term.
    label_shift : bool
        Whether to weight the source labels.
    """

    capturable = True

    joint: Tensor | None
    predicted: Tensor | None

    def __init__(self, schedule: Schedule, *, label_shift: bool) -> None:
        super().__init__("mmd", schedule)
        check_flags(label_shift=label_shift)
        self.label_shift = label_shift
        self.register_buffer("joint", None)
        self.register_buffer("predicted", None)

    def setup(self, n_features: int, n_classes: int) -> None:
        """Make room for the running frequencies; zeros stand for none yet."""
        if self.label_shift and self.joint is None:
            self.joint = torch.zeros(n_classes, n_classes, dtype=torch.float64)
            self.predicted = torch.zeros(n_classes, dtype=torch.float64)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        with full_precision(batch.logits_t):
            p_t = batch.p_t.double()  # distances between sure predictions are far below the rounding of float32
            labels = one_hot(batch.y_s, p_t.shape[1]).to(p_t)
            weights = None
            if self.label_shift:
                p_s = batch.logits_s.detach().double().softmax(dim=1)
                weights = class_weights(*self._frequencies(p_s, labels, p_t.detach()))[batch.y_s]
                # A batch whose classes all have weight zero says nothing; equal weights are the way out.
                weights = weights + (weights.sum() <= 0)
            value: Tensor = mmd(labels, p_t, sample_weight_s=weights)
            return value.to(torch.promote_types(batch.z_t.dtype, torch.float32))

    def _frequencies(self, p_s: Tensor, labels: Tensor, p_t: Tensor) -> tuple[Tensor, Tensor]:
        """Running frequencies, this batch included, of predictions with labels and of the target's predictions."""
        self.setup(0, p_t.shape[1])
        assert self.joint is not None
        assert self.predicted is not None
        joint, predicted = p_s.T @ labels / len(labels), p_t.mean(dim=0)
        if self.joint.device != joint.device:
            self.joint, self.predicted = self.joint.to(joint), self.predicted.to(predicted)
        momentum = torch.where(self.joint.sum() > 0, MOMENTUM, 0.0)  # the first batch stands for itself
        joint = momentum * self.joint + (1 - momentum) * joint
        predicted = momentum * self.predicted + (1 - momentum) * predicted
        if self.training:
            # In place: a CUDA graph of the step goes on from what the last replay has written here.
            self.joint.copy_(joint)
            self.predicted.copy_(predicted)
        return joint, predicted
