"""The evaluator: the only part of a run that holds target labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor, nn

from bures.data import Domain, HiddenLabels
from bures.networks import Backbone, Network
from bures.selection import Evidence, Reliability, Validator, fit_temperature, importance_weights, make_validator
from bures.selection._distances import shared_distances
from bures.selection._predictions import row_entropies
from bures.training._backbone_rows import BackboneRows
from bures.training._inputs import Inputs
from bures.training._placement import move_samples
from bures.training._prediction import (
    Predictions,
    can_adapt_batchnorm,
    is_backbone_fixed,
    predict_samples,
    with_target_statistics,
)

__all__ = ["Evaluation", "Evaluator", "effective_classes", "effective_number", "predicted_frequencies"]


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
        That of the validator that selects: larger is better, no labels needed.
    effective_classes : float
        See `effective_classes`.
    scores : mapping of str to float
        Those of all validators, by name.
    """

    predictions: Predictions
    accuracy: float | None
    score: float
    effective_classes: float
    scores: Mapping[str, float] = field(default_factory=dict)


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
        Processes that decode image files; 0 leaves it to threads of this one.
    batch_size : int, optional
        Samples forwarded at once; None is 512, and fewer of large images.
    validators : sequence of Validator, optional
        Score the network without the labels; the first selects. None is information maximisation.
    source : Domain, optional
        Source samples with labels, of training, for validators that need them.
    validation : Domain, optional
        Source samples with labels that are held out from training, for validators that need them.
    """

    def __init__(
        self,
        domain: Domain,
        hidden: HiddenLabels | None,
        target: Domain,
        inputs: Inputs,
        *,
        n_workers: int = 0,
        batch_size: int | None = None,
        validators: Sequence[Validator] | None = None,
        source: Domain | None = None,
        validation: Domain | None = None,
    ) -> None:
        if hidden is not None and len(hidden) != len(domain):
            raise ValueError(f"hidden holds {len(hidden)} labels but domain has {len(domain)} samples")
        self.domain, self.target, self.inputs = domain, target, inputs
        self.n_workers, self.batch_size = n_workers, batch_size
        self.validators = tuple(validators or (make_validator("im"),))
        self.source, self.validation = source, validation
        self.__hidden = hidden

    @property
    def has_labels(self) -> bool:
        """Whether accuracies can be given."""
        return self.__hidden is not None

    def move(self, device: torch.device) -> None:
        """Keep samples that lie in memory on the device from now on, where they fit."""
        self.domain, self.target = (move_samples(domain, device) for domain in (self.domain, self.target))
        self.source, self.validation = (
            None if domain is None else move_samples(domain, device) for domain in (self.source, self.validation)
        )

    def adapted(self, network: Network, batchnorm: str) -> Network:
        """The network as it is evaluated: with the statistics of training, or a copy with those of the target."""
        if batchnorm == "training" or not can_adapt_batchnorm(network):
            return network
        return self._with_statistics(network, self.target)

    def _with_statistics(self, network: Network, domain: Domain) -> Network:
        return with_target_statistics(
            network, domain.samples, self.inputs, batch_size=self.batch_size, n_workers=self.n_workers
        )

    def evaluate(self, network: Network, batchnorm: str = "training") -> Evaluation:
        """Predict all samples and score the predictions."""
        if (passed := self._head_alone(network, batchnorm, self.validators)) is not None:
            evaluator, head = passed
            return evaluator.evaluate(head, batchnorm)
        predictions = self.predict(network, batchnorm)
        accuracy, classes = self.accuracy(predictions), effective_classes(predictions.probabilities)
        scores = self._scores(network, predictions, batchnorm)
        return Evaluation(predictions, accuracy, scores[self.validators[0].name], classes, scores)

    def accuracy(self, predictions: Predictions) -> float | None:
        """Share of right predictions; None without labels."""
        return None if self.__hidden is None else self.__hidden.accuracy(predictions.probabilities)

    def predict(self, network: Network, batchnorm: str = "training") -> Predictions:
        """Features and probabilities of all samples."""
        if (passed := self._head_alone(network, batchnorm)) is not None:
            evaluator, head = passed
            return evaluator.predict(head, batchnorm)
        return self._predict(self.adapted(network, batchnorm), self.domain)

    def _head_alone(
        self, network: Network, batchnorm: str, validators: Sequence[Validator] = ()
    ) -> tuple[Evaluator, Network] | None:
        """What is left to evaluate once all samples have passed the backbone: the head, on rows in place of samples.

        Estimating statistics and predicting are two passes over the samples. Where only the head has statistics, the
        second need not go through the backbone again. None where that saves nothing.
        """
        if batchnorm == "training" or not can_adapt_batchnorm(network.head) or not is_backbone_fixed(network):
            return None
        rows = BackboneRows(network, self.inputs, batch_size=self.batch_size, n_workers=self.n_workers)
        try:
            evaluator = self.past_backbone(rows, validators)
        except FloatingPointError:
            return None  # domains hold no such rows; training will notice
        width = evaluator.domain.samples.shape[0]
        return evaluator, Network(Backbone("identity", nn.Identity(), width, None), network.head)

    def past_backbone(self, rows: BackboneRows, validators: Sequence[Validator]) -> Evaluator:
        """The evaluator of a head alone: its samples are what a backbone makes of them, its labels stay hidden.

        Parameters
        ----------
        rows : BackboneRows
            Passes the samples through the backbone, those that are needed.
        validators : sequence of Validator
            Score the head; the first selects.
        """
        # Source samples, too, are forwarded with statistics of their own, and held-out ones with those of the source.
        needs = {need.partition("_")[0] for validator in validators for need in validator.needs}
        asked = needs & {"source", "validation"}
        return Evaluator(
            rows.of(self.domain),
            self.__hidden,
            rows.of(self.target),
            Inputs(None, None),
            validators=validators,
            source=rows.of(self.source) if self.source is not None and asked else None,
            validation=rows.of(self.validation) if self.validation is not None and "validation" in asked else None,
        )

    def evidence(
        self, network: Network, predictions: Predictions, batchnorm: str, needs: Sequence[str] | None = None
    ) -> Evidence:
        """What validators may see: predictions of the target and, where they are asked for, samples of the source.

        Parameters
        ----------
        network : Network
            As it was trained.
        predictions : Predictions
            Of the target samples, by the network as it is evaluated.
        batchnorm : {"training", "target"}
            With "target", source samples are forwarded with statistics of the source: each domain with its own.
        needs : sequence of str, optional
            Fields of `bures.selection.Evidence`; None is all that there is.
        """
        wanted = {item.name for item in fields(Evidence)} if needs is None else set(needs)
        found: dict[str, Tensor | None] = {
            "target_probabilities": predictions.probabilities,
            "target_features": predictions.features,
        }
        sides = {"source": self.source, "validation": self.validation}
        asked = {side: domain for side, domain in sides.items() if any(need.startswith(side) for need in wanted)}
        seen = self._as_source_sees(network, batchnorm) if asked else network
        for side, domain in asked.items():
            if domain is not None:
                z, p = self._predict(seen, domain)
                found |= {f"{side}_features": z, f"{side}_probabilities": p, f"{side}_labels": domain.labels}
        return Evidence(**{name: value for name, value in found.items() if name in wanted})

    def _as_source_sees(self, network: Network, batchnorm: str) -> Network:
        """The network with the statistics that source samples are forwarded with."""
        if batchnorm == "training" or self.source is None or not can_adapt_batchnorm(network):
            return network
        return self._with_statistics(network, self.source)

    def _scores(self, network: Network, predictions: Predictions, batchnorm: str) -> dict[str, float]:
        if not all(bool(part.isfinite().all()) for part in predictions):  # training will notice; nothing to score
            return {validator.name: math.nan for validator in self.validators}
        needs = tuple(need for validator in self.validators for need in validator.needs)
        evidence = self.evidence(network, predictions, batchnorm, needs)
        with shared_distances():
            return {validator.name: validator.score(evidence) for validator in self.validators}

    def temperatures(self, network: Network, predictions: Predictions, batchnorm: str) -> dict[str, float] | None:
        """Temperatures at which predictions are calibrated; None where no source samples are held out.

        "source" is that of held-out source samples, "target" that of the same weighted to be like the target;
        "effective_samples" says how many of these decide it: of a few, the temperature is a guess.
        """
        if self.source is None or self.validation is None:
            return None
        seen = self.evidence(network, predictions, batchnorm)
        p, y = seen.validation_probabilities, seen.validation_labels
        weights = importance_weights(seen.source_features, seen.target_features, seen.validation_features)
        return {
            "source": fit_temperature(p, y),
            "target": fit_temperature(p, y, sample_weight=weights),
            "effective_samples": float(weights.sum() ** 2 / weights.square().sum()),
        }

    def _predict(self, network: Network, domain: Domain) -> Predictions:
        return predict_samples(
            network, domain.samples, self.inputs, batch_size=self.batch_size, n_workers=self.n_workers
        )

    def reliability(self, predictions: Predictions) -> Reliability | None:
        """Confidence against accuracy, see `bures.selection.reliability`; None without labels."""
        return None if self.__hidden is None else self.__hidden.reliability(predictions.probabilities)

    def confusion(self, predictions: Predictions) -> Tensor | None:
        """Counts (K, K), row the true class and column the predicted one; None without labels."""
        return None if self.__hidden is None else self.__hidden.confusion(predictions.probabilities)

    def labels_for_the_record(self, index: Tensor) -> Tensor | None:
        """Labels of the samples with these numbers, for what is written when training is over; None without labels."""
        return None if self.__hidden is None else self.__hidden.for_the_record(index)


def effective_classes(probabilities: Tensor) -> float:
    """Number of classes that the predictions are spread over: the exponential of the entropy of their frequencies.

    Parameters
    ----------
    probabilities : Tensor (n, K)
        The predicted class is the most probable one.

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
    return float(row_entropies(frequencies[None]).exp())
