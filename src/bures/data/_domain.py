"""A domain: samples, class names and, where they are known, labels; and the labels that only an evaluator may use."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bures.arrays import Array, as_tensor, describe, refuse_masked
from bures.data._samples import Samples, TensorSamples, as_index

if TYPE_CHECKING:
    from bures.selection import Reliability

__all__ = ["Domain", "HiddenLabels", "composed"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Domain:
    """Samples from one place, the names of their classes and, where they are known, their labels.

    Parameters
    ----------
    name : str
        What the domain is called in tables and messages.
    samples : TensorSamples or ImageFiles
        The n samples.
    class_names : sequence of str
        The K classes; label c is ``class_names[c]``. Empty where nothing is known of the classes. Letters with accents
        are kept as one character each: other systems write two, for names that look the same.
    labels : integer array (n,), optional
        Classes of the samples, from 0 to K - 1. None: unlabelled.
    ids : sequence of str, optional
        What the samples are called, as a rule their file names.
    feature_names : sequence of str, optional
        What the columns of feature vectors (n, d) are called, as in the table they were read from. Two domains with
        names are matched by them, see `align_columns`.

    Examples
    --------
    >>> import torch
    >>> from bures.data import Domain, TensorSamples
    >>> domain = Domain("here", TensorSamples(torch.eye(3)), ["cat", "dog"], labels=[0, 1, 1])
    >>> domain
    Domain('here', 3 samples of shape (3,), 2 classes: cat 1, dog 2)
    >>> domain.take([0, 2]).labels
    tensor([0, 1])
    >>> masked, hidden = domain.hide_labels()
    >>> masked
    Domain('here', 3 samples of shape (3,), 2 classes, unlabelled)
    >>> hidden.accuracy([0, 1, 0])
    0.6666666666666666
    """

    name: str
    samples: Samples
    class_names: tuple[str, ...]
    labels: Tensor | None = None
    ids: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    def __init__(
        self,
        name: str,
        samples: Samples,
        class_names: Iterable[object],
        labels: Array | None = None,
        ids: Iterable[object] | None = None,
        feature_names: Iterable[object] | None = None,
    ) -> None:
        if not isinstance(samples, Samples):
            raise TypeError(
                f"samples is a {describe(samples)}; accepted are TensorSamples and ImageFiles "
                "(an array goes in as TensorSamples(array))"
            )
        n = len(samples)
        if n == 0:
            raise ValueError(f"samples of domain {name!r} is empty; at least one sample is needed")
        classes, names = _as_class_names(class_names), None if ids is None else tuple(map(str, ids))
        parts = {
            "name": name,
            "samples": samples,
            "class_names": classes,
            "labels": None if labels is None else _as_labels("labels", labels, n, classes),
            "ids": names,
            "feature_names": None if feature_names is None else _as_feature_names(feature_names, samples),
        }
        if names is not None and len(names) != n:
            raise ValueError(f"ids has {len(names)} entries but samples has {n}; accepted is one for each sample")
        for part, value in parts.items():
            object.__setattr__(self, part, value)

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def n_classes(self) -> int:
        """Number of classes, K."""
        return len(self.class_names)

    def counts(self) -> Tensor:
        """Number of samples of each class (K,); an error for an unlabelled domain."""
        if self.labels is None:
            raise ValueError(f"domain {self.name!r} is unlabelled; counts need labels")
        return torch.bincount(self.labels, minlength=self.n_classes)

    def take(self, index: Array) -> Domain:
        """The domain of the samples with these numbers, or where a mask of n truth values is true."""
        numbers = as_index(index, len(self))
        if not len(numbers):
            raise ValueError("index selects no sample; a domain has at least one")
        return replace(
            self,
            samples=self.samples.subset(numbers),
            labels=None if self.labels is None else self.labels[numbers],
            ids=None if self.ids is None else tuple(self.ids[number] for number in numbers.tolist()),
        )

    def hide_labels(self) -> tuple[Domain, HiddenLabels]:
        """Part the domain into what training may see and what only an evaluator may use.

        Returns
        -------
        domain : Domain
            The same samples without labels; nothing in it leads to them.
        hidden : HiddenLabels
            Compares predictions with the labels.
        """
        if self.labels is None:
            raise ValueError(f"domain {self.name!r} is unlabelled; there are no labels to hide")
        return replace(self, labels=None), HiddenLabels(self.labels, self.class_names)

    def __repr__(self) -> str:
        parts = [repr(self.name), f"{len(self)} samples of shape {self.samples.shape}"]
        if self.labels is not None:
            counted = zip(self.class_names, self.counts().tolist(), strict=True)
            parts.append(f"{self.n_classes} classes: " + ", ".join(f"{name} {count}" for name, count in counted))
        else:
            parts += [f"{self.n_classes} classes"] * bool(self.class_names) + ["unlabelled"]
        return f"Domain({', '.join(parts)})"


class HiddenLabels:
    """The labels of a domain for its evaluator: they score predictions and are handed out to the record alone.

    Made by :meth:`Domain.hide_labels`.

    Parameters
    ----------
    labels : integer array (n,)
        Classes from 0 to K - 1.
    class_names : sequence of str
        The K classes.

    Examples
    --------
    >>> from bures.data import HiddenLabels
    >>> hidden = HiddenLabels([0, 1, 1, 1], ["cat", "dog"])
    >>> hidden
    HiddenLabels(4 samples)
    >>> hidden.confusion([0, 0, 1, 1])
    tensor([[1, 0],
            [1, 2]])
    """

    __slots__ = ("__labels", "class_names")

    def __init__(self, labels: Array, class_names: Iterable[object]) -> None:
        self.class_names = _as_class_names(class_names)
        self.__labels = _as_labels("labels", labels, None, self.class_names).clone()

    def __len__(self) -> int:
        return len(self.__labels)

    def __repr__(self) -> str:
        return f"HiddenLabels({len(self)} samples)"

    def accuracy(self, predictions: Array) -> float:
        """Share of predictions (n,) that are right; predictions may also be scores (n, K)."""
        return float((self.__read(predictions) == self.__labels).double().mean())

    def confusion(self, predictions: Array) -> Tensor:
        """Counts (K, K) in int64: row the true class, column the predicted one."""
        k = len(self.class_names)
        return torch.bincount(self.__labels * k + self.__read(predictions), minlength=k * k).reshape(k, k)

    def per_class_accuracy(self, predictions: Array) -> Tensor:
        """Share of each class that is predicted right, float64 (K,); NaN for a class without samples."""
        confusion = self.confusion(predictions).double()
        return confusion.diagonal() / confusion.sum(dim=1)

    def reliability(self, probabilities: Array) -> Reliability:
        """Confidence of predicted probabilities (n, K) against their accuracy, see `bures.selection.reliability`."""
        from bures.selection import reliability

        return reliability(probabilities, self.__labels)

    def for_the_record(self, index: Tensor) -> Tensor:
        """Labels of the samples with these numbers, for what is written when training is over."""
        return self.__labels[index]

    def __read(self, predictions: Array) -> Tensor:
        k = len(self.class_names)
        refuse_masked("predictions", predictions)
        values = as_tensor(predictions).cpu()
        if values.ndim == 2 and values.shape[1] == k:
            if bool(values.isnan().any()):
                raise ValueError("predictions contains NaN; accepted are classes (n,) or finite scores (n, K)")
            values = values.argmax(dim=1)
        return _as_labels("predictions", values, len(self), self.class_names)


def _as_class_names(value: Iterable[object]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"class_names={value!r} is a string; accepted is a sequence of names")
    return _all_different("class_names", tuple(composed(str(name)) for name in value))


def composed(name: str) -> str:
    """A name with one character for a letter and its accent, of which macOS may write two: names are compared."""
    return unicodedata.normalize("NFC", name)


def _all_different(argument: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"{argument} contains {repeated[0]!r} more than once; accepted are names that differ")
    return names


def _as_feature_names(value: Iterable[object], samples: Samples) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"feature_names={value!r} is a string; accepted is a sequence of names")
    names = tuple(map(str, value))
    if not isinstance(samples, TensorSamples) or samples.shape != (len(names),):
        raise ValueError(
            f"feature_names has {len(names)} entries but samples are {type(samples).__name__} of shape "
            f"{samples.shape}; accepted is one for each column of feature vectors in memory"
        )
    return _all_different("feature_names", names)


def _as_labels(name: str, value: Array, n: int | None, class_names: tuple[str, ...]) -> Tensor:
    """Read n classes from 0 to K - 1 as an int64 vector in the memory of the host."""
    k = len(class_names)
    accepted = f"accepted are {'n' if n is None else n} integers from 0 to {k - 1}"
    if k == 0:
        raise ValueError(f"{name} is given but class_names is empty; name the classes")
    refuse_masked(name, value)
    try:
        labels = as_tensor(value).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is a {describe(value)}; {accepted}") from error
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.ndim != 1:
        raise ValueError(f"{name} is a {describe(labels)}; {accepted}")
    if n is not None and len(labels) != n:
        raise ValueError(f"{name} has {len(labels)} entries but there are {n} samples; {accepted}")
    labels = labels.long()
    outside = labels[(labels < 0) | (labels >= k)]
    if len(outside):
        raise ValueError(f"{name} contains class {int(outside[0])} but class_names has {k} entries; {accepted}")
    return labels
