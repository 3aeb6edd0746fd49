"""Shallow methods as cells of a sweep: an adapter of `bures.estimators` and a logistic regression behind it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from bures import estimators
from bures.data import Domain, TensorSamples, align_classes, align_columns
from bures.data._registry import has_test_part
from bures.experiments._cell import load_cached, noted_warnings, one_thread, rounded
from bures.experiments._ledger import SCHEMA
from bures.provenance import hardware, versions
from bures.training import checksum, effective_classes, information

__all__ = ["SHALLOW", "SHALLOW_RECIPE", "ShallowCell", "ShallowMethod", "shallow_names"]

SHALLOW_RECIPE = "shallow"  # the place of the recipe's name in tables


@dataclass(frozen=True)
class ShallowMethod:
    """How an adapter is built from a seed, and whether the seed matters."""

    build: Callable[[int], Any]
    seeded: bool = False


# Defaults of the estimators, the same classifier behind all: fixed before any of them was run on a benchmark.
SHALLOW: Mapping[str, ShallowMethod] = MappingProxyType(
    {
        "logistic": ShallowMethod(lambda seed: None),
        "coral": ShallowMethod(lambda seed: estimators.CORAL()),
        "gfk": ShallowMethod(lambda seed: estimators.GFK()),
        "subspace-alignment": ShallowMethod(lambda seed: estimators.SubspaceAlignment()),
        "tca": ShallowMethod(lambda seed: estimators.TCA()),
        "ot-it": ShallowMethod(lambda seed: estimators.OTIT()),
        "ot-class-reg": ShallowMethod(lambda seed: estimators.OTClassReg()),
        "kgot-map": ShallowMethod(lambda seed: estimators.KGOT(seed=seed), seeded=True),
        # The linear kernel, their default, has no landmarks to be drawn.
        "ckb-map": ShallowMethod(lambda seed: estimators.ConditionalBuresAdapter("ckb")),
        "ckw-map": ShallowMethod(lambda seed: estimators.ConditionalBuresAdapter("ckw")),
    }
)


def shallow_names() -> list[str]:
    """Names of the shallow methods that a grid may hold; ``logistic`` adapts nothing.

    Examples
    --------
    >>> from bures.experiments import shallow_names
    >>> "gfk" in shallow_names()
    True
    """
    return list(SHALLOW)


@dataclass(frozen=True)
class ShallowCell:
    """One fit of a shallow method.

    Parameters
    ----------
    source, target : str
        Domains of feature vectors, as `bures.data.load_domain` takes them.
    method : str
        One of `shallow_names`.
    seed : int
        Of the methods that draw random numbers; the others are the same for every seed.
    grid, task_name : str, optional
        Where the cell is declared, for the command that repeats it.

    Examples
    --------
    >>> from bures.experiments import ShallowCell
    >>> ShallowCell("a.npz", "b.npz", "gfk", 0, grid="office10", task_name="amazon:dslr").command
    'bures bench office10 --methods gfk --tasks amazon:dslr --seeds 0 --results results-local'
    """

    source: str
    target: str
    method: str
    seed: int
    grid: str = ""
    task_name: str = ""

    def __post_init__(self) -> None:
        if self.method not in SHALLOW:
            raise ValueError(f"method={self.method!r} is unknown; accepted are {', '.join(SHALLOW)}")

    @property
    def key(self) -> str:
        """What tells the cell from others."""
        return "|".join([self.source, self.target, SHALLOW_RECIPE, self.method, str(self.seed)])

    @property
    def command(self) -> str:
        """The command that repeats the cell, in a folder of its own: a finished cell is not run again."""
        words = ["bures", "bench", self.grid, "--methods", self.method, "--tasks", self.task_name]
        return shlex.join([*words, "--seeds", str(self.seed), "--results", "results-local"])

    @one_thread()
    def run(
        self, data_root: str | Path | None = None, accelerator: str = "cpu", unfinished: Path | None = None
    ) -> dict[str, Any]:
        """Fit on source and unlabelled target, and give what a ledger keeps of it.

        Parameters
        ----------
        data_root : path, optional
            Folder of the data sets.
        accelerator : str, optional
            Ignored: shallow methods run on the CPU.
        unfinished : path, optional
            Ignored: they keep no state.
        """
        root = None if data_root is None else str(data_root)
        source = load_cached(self.source, root, True, None)
        target = align_columns(source, align_classes(source, load_cached(self.target, root, True, None)))
        evaluation = target
        if has_test_part(self.target):
            evaluation = align_classes(source, load_cached(self.target, root, False, None), partial=True)
        if source.labels is None:
            raise ValueError(f"source {source.name!r} is unlabelled; training needs its labels")
        if evaluation.labels is None:
            raise ValueError(f"target {evaluation.name!r} is unlabelled; a table of accuracies needs its labels")
        tested, hidden = evaluation.hide_labels()
        unlabelled = target.hide_labels()[0] if target.labels is not None else target
        adapter = SHALLOW[self.method].build(self.seed)
        model = estimators.AdaptedClassifier(adapter)
        started = time.perf_counter()
        with noted_warnings() as notes:
            model.fit_source_target(_rows(source), source.labels.numpy(), _rows(unlabelled))
            found = torch.from_numpy(model.predict_proba(_rows(tested)))
        seconds = time.perf_counter() - started
        probabilities = torch.zeros(len(tested), source.n_classes, dtype=found.dtype)
        probabilities[:, torch.as_tensor(model.classes_)] = found  # classes without a source sample have none
        score = information(probabilities)
        domains = {"source": source, "target": unlabelled, "evaluation": tested}
        return {
            "schema": SCHEMA,
            "key": self.key,
            "kind": "shallow",
            "task": f"{self.source}->{self.target}",
            "recipe_name": SHALLOW_RECIPE,
            "method": self.method,
            "seed": self.seed,
            "changes": {},
            "command": self.command,
            "final": rounded(
                {
                    "accuracy": hidden.accuracy(probabilities),
                    "score": score,
                    "effective_classes": effective_classes(probabilities),
                    "seconds": round(seconds, 3),
                }
            ),
            "notes": notes,
            "data": {
                side: {"name": domain.name, "samples": len(domain), "checksum": checksum(domain)}
                for side, domain in domains.items()
            },
            "recipe": {"estimator": repr(model), "options": _options(model)},
            "versions": versions(),
            "hardware": hardware(),
        }


def _rows(domain: Domain) -> Any:
    """Feature vectors (n, d) in float64; images as rows of their pixels."""
    if not isinstance(domain.samples, TensorSamples):
        raise TypeError(
            f"the samples of {domain.name!r} are image files; shallow methods take feature vectors, see `bures "
            "features extract`"
        )
    return domain.samples.tensor.flatten(1).double().numpy()


def _options(model: Any) -> dict[str, Any]:
    """All options, defaults included, of adapter and classifier."""
    fitted = {"adapter": model.adapter_, "estimator": model.estimator_}
    return {
        f"{part}.{name}": value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
        for part, estimator in fitted.items()
        if estimator is not None
        for name, value in sorted(estimator.get_params(deep=False).items())
    }
