"""DeepJDOT: optimal transport of features and labels together."""

from __future__ import annotations

from torch import Tensor

from bures.arrays import check_finite, check_not_negative, full_precision
from bures.methods._method import Batch, Method, Schedule, Term
from bures.methods._registry import register
from bures.methods._transport import import_pot, pair_distances, uniform

__all__ = ["JointTransportTerm", "deepjdot"]

MAX_STEPS = 1_000_000  # of the exact solver; its own default is too few for batches of a thousand


@register(
    "deepjdot", matches="joint", paper="Damodaran et al., ECCV 2018", cost="n²(d + K) + n³ log n on CPU", requires="ot"
)
def deepjdot(
    *,
    weight: float = 1.0,
    alpha: float = 1e-3,
    lambda_t: float = 1e-4,
    start: float = 0.0,
    ramp: float = 0.0,
) -> Method:
    r"""Optimal transport of features and labels together: :math:`CE + \lambda \sum_{ij} \gamma_{ij} c_{ij}`.

    .. math:: c_{ij} = \alpha \|z^s_i - z^t_j\|^2 - \lambda_t \log p^t_j(y^s_i), \qquad
        \gamma = \arg\min_{\gamma \in \Pi(1/n, 1/m)} \sum_{ij} \gamma_{ij} c_{ij}

    Damodaran et al., "DeepJDOT: deep joint distribution optimal transport for unsupervised domain adaptation",
    ECCV 2018, with the published :math:`\alpha = 10^{-3}` and :math:`\lambda_t = 10^{-4}`, for digits and features of
    their network: both depend on the scale of the features. ``weight`` is ours, to change both at once. The plan is
    exact, by POT, for each batch, and a constant of the graph: by the envelope theorem the gradient through the cost is
    that of the optimal value. It reaches the features of both domains and the predictions of the target. The authors'
    program finds its plan by other costs, with :math:`\|e_{y_i} - p^t_j\|^2` (:math:`e_y` one-hot) of weight 1 in place
    of the logarithm, where labels decide far more, and has batches of 500 with every class; here plan and loss have the
    cost of the publication.
    """
    import_pot("method 'deepjdot'")  # missing now rather than in the first step
    return Method("deepjdot", [JointTransportTerm(Schedule(weight, start, ramp), alpha, lambda_t)])


class JointTransportTerm(Term):
    """The cost of the optimal plan between source samples with their labels and target samples with predictions."""

    def __init__(self, schedule: Schedule, alpha: float, lambda_t: float) -> None:
        super().__init__("transport", schedule)
        self.alpha, self.lambda_t = check_not_negative("alpha", alpha), check_not_negative("lambda_t", lambda_t)

    def forward(self, batch: Batch) -> Tensor:
        """Value of the term, not yet weighted."""
        ot = import_pot("method 'deepjdot'")
        with full_precision(batch.z_s):
            _check_classes(batch.y_s, batch.logits_t.shape[1])
            surprise = -batch.logits_t.log_softmax(dim=1)[:, batch.y_s].T
            cost = self.alpha * pair_distances(batch.z_s, batch.z_t) + self.lambda_t * surprise
            check_finite("the transport cost", cost)  # the solver would warn of it and go on
            n, m = cost.shape
            plan: Tensor = ot.emd(uniform(n, cost), uniform(m, cost), cost.detach().double(), numItermax=MAX_STEPS)
            return (plan.to(cost.dtype) * cost).sum()


def _check_classes(y_s: Tensor, n_classes: int) -> None:
    """Raise where a label numbers no class: negative ones would number them from the end."""
    wrong = (y_s < 0) | (y_s >= n_classes)
    if bool(wrong.any()):
        raise ValueError(f"y_s contains class {int(y_s[wrong][0])}; accepted are 0 to {n_classes - 1}")
