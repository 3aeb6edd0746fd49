"""What commands on feature vectors read from domains and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bures.cli._naming import said_of_domain
from bures.data import Domain, TensorSamples, align_columns, load_domain

__all__ = ["class_names", "feature_rows", "load_pair", "read_eps"]


def load_pair(source: str, target: str, data_root: Path | None, *, labels: tuple[bool, bool]) -> tuple[Domain, Domain]:
    """Two domains, the columns of the second in the order of the first; ``labels`` says whose labels are read."""
    domains = []
    for side, spec, wanted in zip(("SOURCE", "TARGET"), (source, target), labels, strict=True):
        with said_of_domain(side):  # strict: a shift in lost digits would not be found
            domains.append(load_domain(spec, data_root=data_root, labels=wanted, strict=True))
    first, second = domains
    return first, align_columns(first, second)


def feature_rows(domain: Domain) -> np.ndarray[Any, Any]:
    """The feature vectors (n, d) of a domain; an error where it holds images."""
    if not isinstance(domain.samples, TensorSamples) or domain.samples.tensor.ndim != 2:
        raise ValueError(f"{domain.name!r} holds images of shape {domain.samples.shape}; accepted are feature vectors")
    return np.asarray(domain.samples.tensor)


def class_names(domain: Domain) -> np.ndarray[Any, Any]:
    """Labels by name, so that two files that number their classes differently still agree."""
    if domain.labels is None:
        raise ValueError(
            f"{domain.name!r} has no labels, which ckb and ckw need; add them (true or predicted) to the file, "
            "or compare P(X) with --metric kernel-bures or --metric mmd"
        )
    return np.asarray([domain.class_names[label] for label in domain.labels.tolist()])


def read_eps(text: str) -> str | float:
    """The option ``--eps``: a number, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"--eps {text!r} is not a number; accepted is a positive number or 'auto'") from error
