"""The evaluator: the only part of a run that holds target labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bures.data import Domain, HiddenLabels
from bures.networks import Network
from bures.training._inputs import Inputs
from bures.training._placement import move_samples
from bures.training._prediction import (
    BATCH,
    Predictions,
    can_adapt_batchnorm,
    predict_samples,
    with_target_statistics,
)

__all__ = ["Evaluation", "Evaluator", "effective_classes", "effective_number", "information", "predicted_frequencies"]


@dataclass(frozen=True)
class Evaluation:
    """How a network does on the target.

    Parameters
    ----------
    predictions : Predictions
        Features and probabilities of the evaluated samples.
    accuracy : float or None
        Share of right predictions; None where the target has no labels.
    score : float
        Information of the predictions about the samples, see `information`: larger is better, no labels needed.
    effective_classes : float
        See `effective_classes`.
    """

    predictions: Predictions
    accuracy: float | None
    score: float
    effective_classes: float


class Evaluator:
    """Scores a network on target samples, with the labels that training cannot reach.

    Parameters
    ----------
    domain : Domain
        Samples to be evaluated, without labels.
    hidden : HiddenLabels or None
        Their labels, where they are known.
    target : Domain
        Unlabelled samples for BatchNorm statistics of the target; those of training.
    inputs : Inputs
        What is done to samples before the network sees them.
    n_workers : int, optional
        Processes that decode image files.
    batch_size : int, optional
        Samples forwarded at once.
    """

    def __init__(
        self,
        domain: Domain,
        hidden: HiddenLabels | None,
        target: Domain,
        inputs: Inputs,
        *,
        n_workers: int = 0,
        batch_size: int = BATCH,
    ) -> None:
        if hidden is not None and len(hidden) != len(domain):
            raise ValueError(f"hidden holds {len(hidden)} labels but domain has {len(domain)} samples")
        self.domain, self.target, self.inputs = domain, target, inputs
        self.n_workers, self.batch_size = n_workers, batch_size
        self.__hidden = hidden

    @property
    def has_labels(self) -> bool:
        """Whether accuracies can be given."""
        return self.__hidden is not None

    def move(self, device: torch.device) -> None:
        """Keep samples that lie in memory on the device from now on, where they fit."""
        self.domain, self.target = (move_samples(domain, device) for domain in (self.domain, self.target))

    def adapted(self, network: Network, batchnorm: str) -> Network:
        """The network as it is evaluated: with the statistics of training, or a copy with those of the target."""
        if batchnorm == "training" or not can_adapt_batchnorm(network):
            return network
        samples = self.target.samples
        return with_target_statistics(
            network, samples, self.inputs, batch_size=self.batch_size, n_workers=self.n_workers
        )

    def evaluate(self, network: Network, batchnorm: str = "training") -> Evaluation:
        """Predict all samples and score the predictions."""
        network = self.adapted(network, batchnorm)
        samples = self.domain.samples
        predictions = predict_samples(
            network, samples, self.inputs, batch_size=self.batch_size, n_workers=self.n_workers
        )
        p = predictions.probabilities
        accuracy = None if self.__hidden is None else self.__hidden.accuracy(p)
        return Evaluation(predictions, accuracy, information(p), effective_classes(p))

    def confusion(self, predictions: Predictions) -> Tensor | None:
        """Counts (K, K), row the true class and column the predicted one; None without labels."""
        return None if self.__hidden is None else self.__hidden.confusion(predictions.probabilities)

    def labels_for_the_record(self, index: Tensor) -> Tensor | None:
        """Labels of the samples with these numbers, for what is written when training is over; None without labels."""
        return None if self.__hidden is None else self.__hidden.for_the_record(index)


def information(probabilities: Tensor) -> float:
    """Mutual information of samples and predicted classes: entropy of the mean less the mean entropy, in nats.

    Large where predictions are sure and all classes are predicted; a label-free score of a model.

    Examples
    --------
    >>> import torch
    >>> from bures.training import information
    >>> round(information(torch.eye(4)), 4), information(torch.full((4, 4), 0.25))
    (1.3863, 0.0)
    """
    p = probabilities.double()
    mean = p.mean(dim=0)
    return float(_entropy(mean[None]).sum() - _entropy(p).mean())


def effective_classes(probabilities: Tensor) -> float:
    """Number of classes that the predictions are spread over: the exponential of the entropy of their frequencies.

    Examples
    --------
    >>> import torch
    >>> from bures.training import effective_classes
    >>> effective_classes(torch.eye(4)), effective_classes(torch.eye(4)[[0, 0, 0]])
    (4.0, 1.0)
    """
    return round(effective_number(predicted_frequencies(probabilities)), 6)


def predicted_frequencies(probabilities: Tensor) -> Tensor:
    """Share of the samples that is predicted to be of each class, float64 (K,)."""
    n, k = probabilities.shape
    return torch.bincount(probabilities.argmax(dim=1), minlength=k).double() / n


def effective_number(frequencies: Tensor) -> float:
    """Exponential of the entropy of class frequencies (K,)."""
    return float(_entropy(frequencies[None]).exp())


def _entropy(p: Tensor) -> Tensor:
    entropies: Tensor = torch.special.entr(p).sum(dim=1)
    return entropies
