"""How a saved model does on a labelled domain: accuracy, class by class, and what is taken for what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bures.arrays import check_choice
from bures.data import Domain
from bures.data._classes import listed_classes, with_classes
from bures.selection import Reliability, scale_probabilities
from bures.training._evaluation import Evaluator
from bures.training._prediction import can_adapt_batchnorm
from bures.training._saved_model import SavedModel

__all__ = ["Assessment", "ClassResult", "Confusion", "assess"]

BATCHNORM = ("training", "target")


class ClassResult(NamedTuple):
    """How a model does on one class.

    Attributes
    ----------
    name : str
    samples, correct : int
        How many there are, and how many of them were recognised.
    accuracy : float or None
        Their share; None without samples.
    """

    name: str
    samples: int
    correct: int
    accuracy: float | None


class Confusion(NamedTuple):
    """How many samples of one class were taken for another.

    Attributes
    ----------
    true, predicted : str
    samples : int
    """

    true: str
    predicted: str
    samples: int


@dataclass(frozen=True, eq=False)
class Assessment:
    """What `assess` finds.

    Parameters
    ----------
    domain : str
        Name of the domain.
    batchnorm : {"training", "target"}
        BatchNorm statistics of the network.
    class_names : sequence of str
        The K classes of the model.
    confusion : Tensor (K, K)
        Counts: row the true class, column the predicted one.
    calibration : Reliability, optional
        Confidence against accuracy, see `bures.selection.reliability`.

    Examples
    --------
    >>> import torch
    >>> from bures.training import Assessment
    >>> result = Assessment("there", "training", ("cat", "dog", "emu"), torch.tensor([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    >>> result.accuracy, result.mean_class_accuracy
    (0.875, 0.875)
    >>> result.most_confused()
    [Confusion(true='cat', predicted='dog', samples=1)]
    """

    domain: str
    batchnorm: str
    class_names: tuple[str, ...]
    confusion: Tensor
    calibration: Reliability | None = None

    @property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.confusion.sum())

    @property
    def correct(self) -> int:
        """Number of right predictions."""
        return int(self.confusion.diagonal().sum())

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return self.correct / self.samples

    @property
    def mean_class_accuracy(self) -> float:
        """Mean of the classes' accuracies, each class counting alike; classes without samples are left out."""
        shares = [row.accuracy for row in self.classes() if row.accuracy is not None]
        return sum(shares) / len(shares)

    def classes(self) -> list[ClassResult]:
        """The classes, in the order of the model."""
        counts, correct = self.confusion.sum(dim=1).tolist(), self.confusion.diagonal().tolist()
        return [
            ClassResult(name, n, right, right / n if n else None)
            for name, n, right in zip(self.class_names, counts, correct, strict=True)
        ]

    def most_confused(self, n: int = 10) -> list[Confusion]:
        """The n most frequent confusions, at most; equally frequent ones in the order of the classes."""
        return sorted(self._confusions(), key=lambda confusion: -confusion.samples)[:n]

    def _confusions(self) -> Iterator[Confusion]:
        for true, row in zip(self.class_names, self.confusion.tolist(), strict=True):
            for predicted, count in zip(self.class_names, row, strict=True):
                if count and true != predicted:
                    yield Confusion(true, predicted, count)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "domain": self.domain,
            "samples": self.samples,
            "batchnorm": self.batchnorm,
            "accuracy": self.accuracy,
            "mean_class_accuracy": self.mean_class_accuracy,
            "classes": [row._asdict() for row in self.classes()],
            "confusion": self.confusion.tolist(),
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }


def assess(
    model: SavedModel,
    domain: Domain,
    *,
    batchnorm: str = "training",
    temperature: float = 1.0,
    batch_size: int | None = None,
    n_workers: int = 0,
) -> Assessment:
    """Compare the predictions of a model with the labels of a domain.

    Parameters
    ----------
    model : SavedModel
        It is left as it is.
    domain : Domain
        With labels. Its classes are found by name among the model's; some of those may be absent.
    batchnorm : {"training", "target"}, optional
        BatchNorm statistics: those saved with the model, or those of ``domain``, estimated anew without its labels.
    temperature : float, optional
        Divides the logits: changes how sure predictions are, not which they are.
    batch_size : int, optional
        Samples forwarded at once; None is 512, and fewer of large images.
    n_workers : int, optional
        Processes that decode image files.

    Returns
    -------
    Assessment
        Accuracy, in all and class by class, the confusion matrix and the calibration.

    Examples
    --------
    >>> import tempfile
    >>> from bures.data import optdigits
    >>> from bures.training import Recipe, adapt, assess
    >>> digits = optdigits()
    >>> recipe = Recipe(method="source", network="lenet", epochs=2, epoch=60, batch_size=25, hidden=64, features=32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = adapt(digits.take(range(0, 400)), digits.take(range(400, 800)), recipe, folder + "/run")
    ...     result = assess(run.model(), digits.take(range(400, 800)))
    >>> result.accuracy == run.accuracy
    True
    """
    check_choice("batchnorm", batchnorm, BATCHNORM)
    if domain.labels is None:
        raise ValueError(
            f"{domain.name!r} is unlabelled, and an evaluation compares predictions with labels; accepted are class "
            "folders, and feature files with labels. Unlabelled samples can be predicted: bures predict"
        )
    _check_classes(model, domain)
    if batchnorm == "target":
        _check_batchnorm(model, domain)
    masked, hidden = with_classes(model.fit(domain), model.class_names).hide_labels()
    evaluator = Evaluator(masked, hidden, masked, model.inputs, n_workers=n_workers, batch_size=batch_size)
    predictions = evaluator.predict(model.network, batchnorm)
    predictions = predictions._replace(probabilities=scale_probabilities(predictions.probabilities, temperature))
    confusion = evaluator.confusion(predictions)
    assert confusion is not None
    return Assessment(domain.name, batchnorm, model.class_names, confusion, evaluator.reliability(predictions))


def _check_classes(model: SavedModel, domain: Domain) -> None:
    found = [name for name, count in zip(domain.class_names, domain.counts().tolist(), strict=True) if count]
    if unknown := [name for name in found if name not in model.class_names]:
        raise ValueError(
            f"{domain.name!r} has samples of the {listed_classes(unknown)}, unknown to the model "
            f"({listed_classes(model.class_names)}); rename or remove them"
        )


def _check_batchnorm(model: SavedModel, domain: Domain) -> None:
    if not can_adapt_batchnorm(model.network):
        raise ValueError("batchnorm='target' needs BatchNorm layers, and the network of this model has none to adapt")
    if len(domain) < 2:
        raise ValueError(f"batchnorm='target' estimates variances, and {domain.name!r} has one sample; give more")
