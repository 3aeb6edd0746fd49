"""Scores of the target's predictions alone: how sure they are, how spread over the classes, how clustered."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bures.arrays import Array, check_count, check_positive
from bures.devices import cpu_by_default
from bures.selection._evidence import read_probabilities
from bures.selection._validator import register

__all__ = [
    "information",
    "negative_entropy",
    "neighbourhood_density",
    "relative_nuclear_norm",
    "row_entropies",
    "subsample",
    "subset",
]

CHUNK = 2**22  # entries of a block of similarities
RANK = 2048  # of the Gram matrix whose eigenvalues are taken


@register("entropy")
def negative_entropy(target_probabilities: Array) -> float:
    r"""Sure predictions: the mean of the predictions' entropies in nats, with a minus sign.

    A model that takes every sample for one class is sure, too: see `information`.

    Parameters
    ----------
    target_probabilities : array (m, K)
        Predicted class probabilities.

    Returns
    -------
    float
        :math:`\frac1m \sum_{ic} p_{ic} \log p_{ic}`, from :math:`-\log K` to 0.

    References
    ----------
    Morerio, Cavazza and Murino, "Minimal-entropy correlation alignment for unsupervised deep domain adaptation",
    ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import negative_entropy
    >>> round(negative_entropy(np.full((5, 4), 0.25)), 4), negative_entropy(np.eye(4))
    (-1.3863, 0.0)
    """
    p = read_probabilities("target_probabilities", target_probabilities).double()
    return 0.0 - float(row_entropies(p).mean())


@register("im")
def information(target_probabilities: Array) -> float:
    """Mutual information of samples and predicted classes: entropy of the mean less the mean entropy, in nats.

    Large where predictions are sure and all classes are predicted.

    Parameters
    ----------
    target_probabilities : array (m, K)
        Predicted class probabilities.

    Returns
    -------
    float
        From 0 to the logarithm of the number of classes.

    References
    ----------
    Krause, Perona and Gomes, "Discriminative clustering by regularized information maximization", NIPS 2010.

    Examples
    --------
    >>> import torch
    >>> from bures.selection import information
    >>> round(information(torch.eye(4)), 4), information(torch.full((4, 4), 0.25))
    (1.3863, 0.0)
    """
    p = read_probabilities("target_probabilities", target_probabilities).double()
    mean = p.mean(dim=0)
    return float(row_entropies(mean[None]).sum() - row_entropies(p).mean())


@register("snd")
@cpu_by_default()
def neighbourhood_density(target_probabilities: Array, *, temperature: float = 0.05, max_samples: int = 2048) -> float:
    r"""Soft neighbourhood density: how many samples are each other's neighbours in the space of predictions.

    Predictions :math:`f_i = p_i / \|p_i\|` have similarities :math:`s_{ij} = f_i^\top f_j / \tau`, whose softmax over
    :math:`j \ne i` is a distribution over neighbours. The score is its mean entropy: large where the samples lie in
    dense clusters. One cluster of all samples has the largest score, so a collapse is not noticed.

    Parameters
    ----------
    target_probabilities : array (m, K)
        Predicted class probabilities.
    temperature : float, optional
        :math:`\tau`.
    max_samples : int, optional
        Of more samples a random part is taken, always the same: the cost grows with the square of the number.

    Returns
    -------
    float
        From 0 to :math:`\log(m - 1)`; NaN for a single sample, which has no neighbour.

    References
    ----------
    Saito, Kim, Teterwak, Sclaroff, Darrell and Saenko, "Tune it the right way: unsupervised validation of domain
    adaptation via soft neighborhood density", ICCV 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import neighbourhood_density
    >>> pairs = np.repeat(np.eye(3), 2, axis=0)  # every sample has one neighbour
    >>> round(neighbourhood_density(pairs, temperature=0.01), 4)
    0.0
    """
    tau = check_positive("temperature", temperature)
    p = subsample(read_probabilities("target_probabilities", target_probabilities), max_samples)
    m = len(p)
    if m < 2:
        return math.nan
    f = p / p.norm(dim=1, keepdim=True)
    total = 0.0
    for rows in torch.split(torch.arange(m), max(CHUNK // m, 1)):
        s = f[rows] @ f.T / tau
        s[torch.arange(len(rows)), rows] = -math.inf  # a sample is no neighbour of its own
        log_neighbours = s.log_softmax(dim=1)
        neighbours = log_neighbours.exp()
        total -= float(torch.where(neighbours > 0, neighbours * log_neighbours, 0.0).sum())
    return total / m


@register("bnm")
def relative_nuclear_norm(target_probabilities: Array) -> float:
    r"""Batch nuclear norm of the predictions, relative to the largest possible: sure and spread over the classes.

    Parameters
    ----------
    target_probabilities : array (m, K)
        Predicted class probabilities. Where both m and K are above 2048, this many samples are taken.

    Returns
    -------
    float
        :math:`\|P\|_* / \sqrt{m \min(m, K)}`, from above 0 to 1.

    References
    ----------
    Cui, Wang, Zhuo, Li, Huang and Tian, "Towards discriminability and diversity: batch nuclear-norm maximization under
    label insufficient situations", CVPR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import relative_nuclear_norm
    >>> round(relative_nuclear_norm(np.eye(4)), 6), round(relative_nuclear_norm(np.eye(4)[[0, 0, 0, 0]]), 6)
    (1.0, 0.5)
    """
    p = read_probabilities("target_probabilities", target_probabilities).double()
    if min(p.shape) > RANK:
        p = subsample(p, RANK)
    gram = p.T @ p if len(p) > p.shape[1] else p @ p.T
    singular_values = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    return float(singular_values.sum()) / math.sqrt(len(p) * len(gram))


def row_entropies(p: Tensor) -> Tensor:
    """Entropies (n,) of rows of probabilities, in nats."""
    entropies: Tensor = torch.special.entr(p).sum(dim=1)
    return entropies


def subsample(x: Tensor, n: int) -> Tensor:
    """At most n rows, drawn at random but always the same, in their order."""
    return x[subset(len(x), n)]


def subset(n: int, size: int) -> Tensor:
    """The numbers of ``size`` out of n samples, drawn at random but always the same, in their order."""
    size = check_count("max_samples", size)
    if n <= size:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:size].sort().values
