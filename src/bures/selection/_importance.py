"""Risks in the target estimated from labelled source samples, weighted by how typical of the target they are."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from bures.arrays import Array, as_sample_weight, check_choice, check_finite, check_positive, numpy_to_tensor
from bures.devices import cpu_by_default
from bures.selection._evidence import read_alike, read_labels, read_probabilities
from bures.selection._predictions import subsample
from bures.selection._validator import register

__all__ = [
    "controlled_risk",
    "importance_weights",
    "negative_dev",
    "negative_iwcv",
    "source_accuracy",
    "weighted_risk",
]

LOSSES = ("cross-entropy", "zero-one")


@register("source")
def source_accuracy(validation_probabilities: Array, validation_labels: Array) -> float:
    """Accuracy on held-out source samples: knows nothing of the target, and is what others have to beat.

    Parameters
    ----------
    validation_probabilities, validation_labels : array (v, K), (v,)
        Predictions for source samples that were not trained on, and their classes.

    Returns
    -------
    float
        Share of right predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import source_accuracy
    >>> source_accuracy(np.eye(2), np.array([0, 0]))
    0.5
    """
    p, y = _read_validation(validation_probabilities, validation_labels)
    return float((p.argmax(dim=1) == y).double().mean())


@register("iwcv")
@cpu_by_default()
def negative_iwcv(
    source_features: Array,
    target_features: Array,
    validation_features: Array,
    validation_probabilities: Array,
    validation_labels: Array,
    *,
    loss: str = "cross-entropy",
    regularisation: float = 1.0,
    max_samples: int = 4096,
) -> float:
    """Importance-weighted validation: the weighted risk on held-out source samples, negative.

    Parameters
    ----------
    source_features, target_features : array (n, d), (m, d)
        Features of both domains, from which the weights are learnt.
    validation_features, validation_probabilities, validation_labels : array (v, d), (v, K), (v,)
        Source samples that were not trained on: features, predictions and classes.
    loss : {"cross-entropy", "zero-one"}, optional
        What the risk is the mean of.
    regularisation, max_samples : optional
        As in `importance_weights`.

    Returns
    -------
    float
        Less the estimated risk in the target, see `weighted_risk`.

    References
    ----------
    Sugiyama, Krauledat and Müller, "Covariate shift adaptation by importance weighted cross validation", JMLR 8, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import negative_iwcv
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(3, 50, 2)), np.arange(50) % 2
    >>> negative_iwcv(*x, np.full((50, 2), 0.5), y) < 0
    True
    """
    losses = _losses(validation_probabilities, validation_labels, loss)
    weights = importance_weights(
        source_features, target_features, validation_features, regularisation=regularisation, max_samples=max_samples
    )
    return -weighted_risk(losses, weights)


@register("dev")
@cpu_by_default()
def negative_dev(
    source_features: Array,
    target_features: Array,
    validation_features: Array,
    validation_probabilities: Array,
    validation_labels: Array,
    *,
    loss: str = "cross-entropy",
    regularisation: float = 1.0,
    max_samples: int = 4096,
) -> float:
    """Deep embedded validation: the weighted risk with the weights as control variate, negative.

    The publication's weights come from a small network, and its program counts errors (``loss="zero-one"``); here they
    come from `importance_weights`, and the loss is what training minimises.

    Parameters
    ----------
    source_features, target_features : array (n, d), (m, d)
        Features of both domains, from which the weights are learnt.
    validation_features, validation_probabilities, validation_labels : array (v, d), (v, K), (v,)
        Source samples that were not trained on: features, predictions and classes.
    loss : {"cross-entropy", "zero-one"}, optional
        What the risk is the mean of.
    regularisation, max_samples : optional
        As in `importance_weights`.

    Returns
    -------
    float
        Less the estimated risk in the target, see `controlled_risk`.

    References
    ----------
    You, Wang, Long and Jordan, "Towards accurate model selection in deep unsupervised domain adaptation", ICML 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import negative_dev
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(3, 50, 2)), np.arange(50) % 2
    >>> round(negative_dev(*x, np.full((50, 2), 0.5), y), 6)  # the same loss everywhere, whatever the weights
    -0.693147
    """
    losses = _losses(validation_probabilities, validation_labels, loss)
    weights = importance_weights(
        source_features, target_features, validation_features, regularisation=regularisation, max_samples=max_samples
    )
    return -controlled_risk(losses, weights)


@cpu_by_default()
def importance_weights(
    source_features: Array, target_features: Array, at: Array, *, regularisation: float = 1.0, max_samples: int = 4096
) -> Tensor:
    r"""Density ratios :math:`p_t(x) / p_s(x)`, from a classifier that tells the domains apart.

    A logistic regression on standardised features gives :math:`P(t \mid x)`; by Bayes' rule the ratio is
    :math:`\frac{P(t \mid x)}{P(s \mid x)} \cdot \frac{n}{m}`. It is exact in the limit where the logarithm of the
    ratio is linear in the features, as for Gaussians of equal covariance.

    Parameters
    ----------
    source_features, target_features : array (n, d), (m, d)
        Features of both domains.
    at : array (v, d)
        Where the ratio is wanted.
    regularisation : float, optional
        Strength of the penalty on squared coefficients; larger brings the weights closer to one.
    max_samples : int, optional
        Of more samples in a domain a random part is taken, always the same.

    Returns
    -------
    Tensor (v,)
        Float64. Domains that a hyperplane separates have weights near zero, or very large ones.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import importance_weights
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> weights = importance_weights(x, x + [1.0, 0.0], [[-1.0, 0.0], [0.5, 0.0], [2.0, 0.0]])
    >>> bool(weights[0] < weights[1] < weights[2])
    True
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    check_positive("regularisation", regularisation)
    given = {"source_features": source_features, "target_features": target_features, "at": at}
    xs, xt, points = read_alike(given).values()
    xs, xt, points = subsample(xs, max_samples).double(), subsample(xt, max_samples).double(), points.double()
    if not xs.shape[1] == xt.shape[1] == points.shape[1]:
        raise ValueError(
            f"source_features, target_features and at have {xs.shape[1]}, {xt.shape[1]} and {points.shape[1]} columns; "
            "they must come from one model"
        )
    both = torch.cat([xs, xt])
    mean, scale = both.mean(dim=0), both.std(dim=0, unbiased=False)
    scale = torch.where(scale > 0, scale, 1.0)  # a constant feature tells no domains apart
    domain = torch.cat([torch.zeros(len(xs)), torch.ones(len(xt))])
    classifier = LogisticRegression(C=1 / regularisation, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an unfinished fit has weights a little closer to one
        classifier.fit(((both - mean) / scale).numpy(), domain.numpy())
    log_odds = torch.as_tensor(classifier.decision_function(((points - mean) / scale).numpy()))
    return torch.exp(log_odds.clamp(-30.0, 30.0)) * (len(xs) / len(xt))


def weighted_risk(losses: Array, weights: Array) -> float:
    r"""Importance-weighted risk :math:`\frac1v \sum_i w_i \ell_i`: an unbiased estimate of the target's under P(Y|X).

    Parameters
    ----------
    losses : array (v,)
        Losses of source samples that were not trained on.
    weights : array (v,)
        Their density ratios, not normalised.

    Returns
    -------
    float
        The estimated risk in the target.

    Examples
    --------
    >>> from bures.selection import weighted_risk
    >>> weighted_risk([0.0, 1.0], [0.5, 1.5])
    0.75
    """
    ell, w = _read_pair(losses, weights)
    return float((w * ell).mean())


def controlled_risk(losses: Array, weights: Array) -> float:
    r"""Weighted risk with a control variate: the weights' mean, known to be one, takes variance away.

    .. math::
        \frac1v \sum_i w_i \ell_i + \eta \Bigl(\frac1v \sum_i w_i - 1\Bigr), \qquad
        \eta = -\frac{\mathrm{Cov}(w\ell, w)}{\mathrm{Var}(w)} .

    Parameters
    ----------
    losses, weights : array (v,)
        As in `weighted_risk`.

    Returns
    -------
    float
        The estimated risk in the target.

    Examples
    --------
    >>> from bures.selection import controlled_risk
    >>> round(controlled_risk([0.3, 0.3, 0.3], [0.1, 5.0, 0.2]), 6)
    0.3
    """
    ell, w = _read_pair(losses, weights)
    weighted = w * ell
    variance = w.var(unbiased=False)
    if len(w) < 2 or float(variance) <= 1e-24 * float(w.square().mean()):  # equal weights control nothing
        return float(weighted.mean())
    eta = -((weighted - weighted.mean()) * (w - w.mean())).mean() / variance
    return float(weighted.mean() + eta * (w.mean() - 1))


def _read_pair(losses: Array, weights: Array) -> tuple[Tensor, Tensor]:
    ell, w = (
        value.detach().cpu().double() if isinstance(value, Tensor) else numpy_to_tensor(name, value)
        for name, value in (("losses", losses), ("weights", weights))
    )
    if ell.ndim != 1 or not len(ell):
        raise ValueError(f"losses has shape {tuple(ell.shape)}; accepted is one loss for each sample")
    check_finite("losses", ell)
    as_sample_weight("weights", w, len(ell), like=ell)  # its checks; the sum matters here
    return ell, w


def _losses(probabilities: Array, labels: Array, loss: str) -> Tensor:
    check_choice("loss", loss, LOSSES)
    p, y = _read_validation(probabilities, labels)
    if loss == "zero-one":
        return (p.argmax(dim=1) != y).double()
    own = p[torch.arange(len(p)), y]
    return -own.clamp(min=torch.finfo(torch.float32).tiny).log()


def _read_validation(probabilities: Array, labels: Array) -> tuple[Tensor, Tensor]:
    p = read_probabilities("validation_probabilities", probabilities).double()
    y = read_labels("validation_labels", labels, p.shape[1])
    if len(y) != len(p):
        raise ValueError(f"validation_labels has {len(y)} entries but validation_probabilities {len(p)} rows")
    return p, y
