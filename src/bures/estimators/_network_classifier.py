"""A classifier with a network inside, trained with the Conditional Kernel Bures metric between the domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data

from bures.arrays import Array, check_choice, check_flags
from bures.estimators._base import (
    FitsTwoArrays,
    Floats,
    at_most,
    class_codes,
    read_domains,
    read_sign,
    source_rows,
    warn_of_hidden_labels,
)
from bures.methods import make_method, method_names

__all__ = ["CKBClassifier"]

ROWS = 4096  # forwarded at once in predictions


class CKBClassifier(FitsTwoArrays, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for target rows: a network trained on a labelled source and an unlabelled target.

    Parameters
    ----------
    method : str, optional
        How the domains are brought together: "ckb" is the paper's objective; others of `bures.methods.method_names`
        train the same network for comparison, and "source" ignores the target.
    options : mapping, optional
        Options of the method, such as ``{"entropy": 0.1}``; see `bures.methods.method_options`.
    hidden, features : int, optional
        Widths of the two layers; the domains are aligned in the second.
    epochs : int, optional
        Passes over the smaller domain: few rows make few steps.
    batch_size : int, optional
        Rows of each domain in a step; at most all of the smaller domain.
    lr : float, optional
        Learning rate of Adam.
    standardise : bool, optional
        Shift and scale the columns to mean 0 and variance 1 over the rows of both domains, whatever the method. Both
        are treated alike: no difference between the domains is taken out here.
    device : str, optional
        Where to train: "cpu", "cuda", or "auto" for a GPU where there is one. Predictions are made on the CPU.
    seed : int, optional
        Of weights and of the order of rows. On the CPU the same seed gives the same classifier.

    Attributes
    ----------
    classes_ : array (K,)
    network_ : torch.nn.Module
        With the BatchNorm statistics of the target; takes standardised rows.
    source_network_ : torch.nn.Module
        The same weights with those of the source.
    history_ : list of dict
        Mean loss terms of each epoch.
    n_steps_ : int
        Steps made.
    n_features_in_ : int

    Notes
    -----
    Without `sample_domain` every row is source, whatever y holds (-1 is a class then), and the network is trained on
    the source alone. With it, y of target rows is never looked at. The training is that of ``bures adapt`` without
    its run folder: nothing is written. For images, resumable training and reports use `bures.training.adapt`.

    With metadata routing of scikit-learn the classifier asks for `sample_domain` in every method, so that
    cross-validation and skada's splitters, scorers and pipelines pass it on.

    References
    ----------
    .. [1] Y.-W. Luo and C.-X. Ren, "Conditional Bures Metric for Domain Adaptation", CVPR 2021, pp. 13989-13998.

    Examples
    --------
    >>> import bures
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> xs, ys, xt, yt = X[:500], y[:500], 6 + X[500:1000] / 3, y[500:1000]  # the target is faded
    >>> plain = bures.CKBClassifier("source", epochs=20).fit_source_target(xs, ys, xt)
    >>> adapted = bures.CKBClassifier(epochs=20).fit_source_target(xs, ys, xt)
    >>> plain.score(xt, yt) + 0.1 < adapted.score(xt, yt)
    True
    """

    # What scikit-learn's metadata routing passes on without being asked; allow_source is skada's word.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_log_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True, "sample_weight": True}

    def __init__(
        self,
        method: str = "ckb",
        *,
        options: Mapping[str, Any] | None = None,
        hidden: int = 128,
        features: int = 64,
        epochs: int = 40,
        batch_size: int = 64,
        lr: float = 1e-3,
        standardise: bool = True,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.method = method
        self.options = options
        self.hidden = hidden
        self.features = features
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.standardise = standardise
        self.device = device
        self.seed = seed

    def fit(self, X: Array, y: Array, sample_domain: Array | None = None) -> Self:
        """Fit on the rows of both domains.

        Parameters
        ----------
        X : array (n, d)
            Features of both domains.
        y : array (n,)
            Classes. Those of target rows are ignored, whatever their value.
        sample_domain : array (n,), optional
            Positive integers mark source rows, negative ones target rows; several domains of a side are pooled.
            Without it all rows are source.

        Returns
        -------
        self
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        source = read_domains(sample_domain, len(X), self, needs_target=False)
        ys = source_rows(y, source, self)
        if sample_domain is None:
            warn_of_hidden_labels(ys)
        return self._fit_domains(X[source], ys, X[~source])

    def predict(self, X: Array, sample_domain: Array | None = None, allow_source: bool = True) -> NDArray[Any]:
        """Classes of rows.

        Parameters
        ----------
        X : array (n, d)
            Rows, of the target unless `sample_domain` says otherwise.
        sample_domain : int or array (n,), optional
            Positive for source rows, negative for target rows; one number stands for all rows.
        allow_source : bool, optional
            Taken because skada's scorers pass it; source rows are always allowed.

        Returns
        -------
        array (n,)
        """
        check_is_fitted(self)
        winners = self._forward(X, sample_domain)[1].argmax(axis=1)
        return np.asarray(self.classes_[winners])

    def predict_proba(self, X: Array, sample_domain: Array | None = None, allow_source: bool = True) -> Floats:
        """Probabilities (n, K) of the classes, for the rows of `predict`."""
        check_is_fitted(self)
        return np.exp(self._forward(X, sample_domain)[1])

    def predict_log_proba(self, X: Array, sample_domain: Array | None = None, allow_source: bool = True) -> Floats:
        """Logarithms (n, K) of the probabilities, for the rows of `predict`."""
        check_is_fitted(self)
        return self._forward(X, sample_domain)[1]

    def predict_features(self, X: Array, sample_domain: Array | None = None) -> Floats:
        """Features (n, ``features``) in which the domains are aligned, for the rows of `predict`."""
        check_is_fitted(self)
        return self._forward(X, sample_domain)[0]

    def score(
        self,
        X: Array,
        y: Array,
        sample_weight: Array | None = None,
        sample_domain: Array | None = None,
        allow_source: bool = True,
    ) -> float:
        """Accuracy on labelled rows, those of `predict`; weighted by `sample_weight` where it is given."""
        return float(accuracy_score(y, self.predict(X, sample_domain), sample_weight=sample_weight))

    def _forward(self, X: Array, sample_domain: Array | None) -> tuple[Floats, Floats]:
        """Features and log-probabilities of rows, each by the network with the statistics of its domain."""
        X = validate_data(self, X, dtype=np.float64, reset=False)
        source = np.zeros(len(X), dtype=bool) if sample_domain is None else read_sign(sample_domain, len(X))
        rows = torch.from_numpy((X - self.mean_) / self.scale_)
        head: Any = self.network_.head
        features, scores = np.empty((len(X), head.out_features)), np.empty((len(X), len(self.classes_)))
        with torch.no_grad():
            for network, mask in ((self.source_network_, source), (self.network_, ~source)):
                numbers = mask.nonzero()[0]
                for start in range(0, len(numbers), ROWS):
                    part = numbers[start : start + ROWS]
                    z, logits = network(rows[part])
                    features[part], scores[part] = z.numpy(), logits.log_softmax(dim=1).numpy()
        return features, scores

    def _fit_domains(self, xs: Floats, ys: NDArray[Any], xt: Floats) -> Self:
        from bures.estimators._network_training import train_networks
        from bures.training import Recipe

        self._check_method()
        check_flags(standardise=self.standardise)
        self.classes_, codes = class_codes(ys)
        alone = len(xt) == 0 or self.method == "source"
        smaller, least = ("source", len(xs)) if alone or len(xs) <= len(xt) else ("target", len(xt))
        if least < 2:
            raise ValueError(f"the {smaller} has {least} sample; {type(self).__name__} needs at least two of a domain")
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class in source rows, {self.classes_[0]!r}; a classifier needs at least two classes"
            )
        numbers = {name: getattr(self, name) for name in ("hidden", "features", "epochs", "lr", "seed")}
        # A search over parameters draws NumPy's numbers; a recipe holds Python's.
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in numbers.items()}
        recipe = Recipe(
            method="source" if alone else self.method,
            options=dict(self.options or {}),
            network="identity",
            batch_size=at_most("batch_size", self.batch_size, least),
            **plain,
        )
        self.mean_, self.scale_ = np.zeros(xs.shape[1]), np.ones(xs.shape[1])
        if self.standardise:
            rows = np.concatenate([xs, xt])
            self.mean_, spread = rows.mean(axis=0), rows.std(axis=0)
            # A column that is constant but for rounding is not blown up.
            constant = spread <= 10 * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)
            self.scale_ = np.where(constant, 1.0, spread)
        zs, zt = (((x - self.mean_) / self.scale_).astype(np.float32) for x in (xs, xt))
        trained = train_networks(zs, codes, None if alone else zt, len(self.classes_), recipe, self.device)
        self.source_network_, self.network_ = trained.source, trained.target
        self.history_, self.n_steps_ = trained.history, trained.n_steps
        return self

    def _check_method(self) -> None:
        check_choice("method", self.method, method_names())
        method = make_method(self.method)
        if method.owns_training or method.trains_on_target:
            raise ValueError(
                f"method={self.method!r} cannot train here: it "
                + ("makes its own training steps" if method.owns_training else "trains on target labels")
                + "; accepted are methods of feature vectors, such as 'ckb', 'ckw' or 'source'"
            )
        if self.options is not None and not isinstance(self.options, Mapping):
            raise ValueError(f"options={self.options!r} is no mapping; accepted are names and values, or None")
