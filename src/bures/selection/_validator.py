"""Validators by name: functions of what a model shows without target labels, larger for the better model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bures.arrays import check_flags
from bures.selection._evidence import Evidence, check_needs

__all__ = [
    "DEFAULT_VALIDATOR",
    "FIRST_VALIDATOR",
    "Validator",
    "make_validator",
    "register",
    "validator_names",
    "validator_options",
]

Score = Callable[..., float]

# What selects where nothing else is asked for. Not a matter of taste: a test holds it to the published study.
DEFAULT_VALIDATOR = "im"
FIRST_VALIDATOR = "im"  # what selected before there was a choice, in runs that do not say by what

_SCORES: dict[str, Score] = {}


@dataclass(frozen=True)
class Validator:
    """A score of a model that needs no target labels; larger is better.

    Parameters
    ----------
    name : str
        What it is called.
    needs : tuple of str
        Fields of `Evidence` that it reads.
    function : callable
        Called with these fields by name, returns the score. NaN says that these samples decide nothing.
    summary : str, optional
        What it measures, in one line.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.selection import Evidence, Validator, make_validator
    >>> make_validator("snd", temperature=0.1)
    Validator('snd', needs target_probabilities)
    >>> own = Validator("sure", ("target_probabilities",), lambda target_probabilities: target_probabilities.max())
    >>> own.score(Evidence(target_probabilities=np.eye(2)))
    1.0
    """

    name: str
    needs: tuple[str, ...]
    function: Score = field(repr=False)
    summary: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        known = Evidence.__dataclass_fields__
        if unknown := [need for need in self.needs if need not in known]:
            raise ValueError(f"needs contains {unknown[0]!r}; accepted are {', '.join(known)}")

    @property
    def needs_source(self) -> bool:
        """Whether features or labels of the source are read: these cost another pass over samples."""
        return any(need.startswith("source_") for need in self.needs)

    @property
    def needs_holdout(self) -> bool:
        """Whether source samples are read that training has not seen."""
        return any(need.startswith("validation_") for need in self.needs)

    def score(self, evidence: Evidence) -> float:
        """The score; an error where something that is needed is missing."""
        check_needs(self.name, self.needs, evidence)
        return float(self.function(**{need: getattr(evidence, need) for need in self.needs}))

    def __repr__(self) -> str:
        return f"Validator({self.name!r}, needs {', '.join(self.needs)})"


def register(name: str) -> Callable[[Score], Score]:
    """Make a function available as a validator.

    Its positional arguments are what it needs, named as the fields of `Evidence`; its keyword-only arguments are its
    options; the first line of its docstring is its summary.
    """

    def add(score: Score) -> Score:
        _SCORES[name] = score
        return score

    return add


def validator_names(*, holdout: bool = True) -> list[str]:
    """The names of all validators, sorted.

    Parameters
    ----------
    holdout : bool, optional
        False leaves out those that need held-out source samples.

    Examples
    --------
    >>> from bures.selection import validator_names
    >>> validator_names()
    ['bnm', 'ckb', 'ckw', 'dev', 'entropy', 'im', 'iwcv', 'reverse', 'snd', 'source']
    """
    check_flags(holdout=holdout)
    names = sorted(_scores())
    return names if holdout else [name for name in names if not make_validator(name).needs_holdout]


def validator_options(name: str) -> dict[str, Any]:
    """The options of a validator with their defaults.

    Parameters
    ----------
    name : str
        One of `validator_names`.

    Examples
    --------
    >>> from bures.selection import validator_options
    >>> validator_options("snd")
    {'temperature': 0.05, 'max_samples': 2048}
    """
    parameters = inspect.signature(_score(name)).parameters.values()
    return {item.name: item.default for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY}


def make_validator(name: str, **options: Any) -> Validator:
    """Build a validator by name.

    Parameters
    ----------
    name : str
        One of `validator_names`.
    **options
        See `validator_options`.

    Examples
    --------
    >>> from bures.selection import make_validator
    >>> make_validator("ckw").needs
    ('source_features', 'source_labels', 'target_features', 'target_probabilities')
    """
    score = _score(name)
    own = validator_options(name)
    if unknown := sorted(set(options) - set(own)):
        accepted = ", ".join(own) or "none"
        raise ValueError(f"validator {name!r} has no option {unknown[0]!r}; accepted are: {accepted}")
    needs = tuple(item for item in inspect.signature(score).parameters if item not in own)
    summary = (inspect.getdoc(score) or "").partition("\n")[0].rstrip(".")
    return Validator(name, needs, partial(score, **options) if options else score, summary)


def _score(name: str) -> Score:
    scores = _scores()
    if name not in scores:
        raise ValueError(f"validator={name!r} is unknown; accepted are {', '.join(map(repr, sorted(scores)))}")
    return scores[name]


def _scores() -> Mapping[str, Score]:
    from bures.selection import _distances, _importance, _predictions, _reverse  # noqa: F401 - they register

    return _SCORES
