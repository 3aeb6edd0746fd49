"""Tables as CSV that a spreadsheet opens as they are meant, and predictions as such a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from bures.data import Domain
from bures.data._feature_formats import is_number
from bures.files import write_text

__all__ = ["csv_cell", "predictions_csv", "table_csv", "write_predictions"]


def write_predictions(
    path: str | Path,
    domain: Domain,
    probabilities: Tensor,
    class_names: Sequence[str],
    *,
    threshold: float | None = None,
) -> Path:
    """Write the table of `predictions_csv` to a file, whole or not at all."""
    return write_text(path, predictions_csv(domain, probabilities, class_names, threshold=threshold))


def predictions_csv(
    domain: Domain, probabilities: Tensor, class_names: Sequence[str], *, threshold: float | None = None
) -> str:
    """Predictions as CSV: a row for each sample with its name, the class, and the probability of every class.

    Parameters
    ----------
    domain : Domain
        Names the n samples; those without a name are counted from 0. Its classes and labels are not read.
    probabilities : Tensor (n, K)
        Of the classes.
    class_names : sequence of str
        The K classes of the network.
    threshold : float, optional
        Leave the class of a sample empty where no probability reaches this, with the reason in a column of its own.
    """
    names = domain.ids or tuple(map(str, range(len(domain))))
    classes = probabilities.argmax(dim=1).tolist()
    columns = ["sample", "class", *["reason"] * (threshold is not None), *(f"p({name})" for name in class_names)]

    def decision(label: int, confidence: float) -> list[str]:
        if threshold is None:
            return [class_names[label]]
        if confidence >= threshold:
            return [class_names[label], ""]
        return ["", f"confidence {confidence:.6g} is below {threshold:g}"]

    rows = (
        [_encodable(name), *decision(label, row[label]), *(f"{p:.6g}" for p in row)]
        for name, label, row in zip(names, classes, probabilities.tolist(), strict=True)
    )
    return table_csv(columns, rows)


def table_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV that a spreadsheet opens without taking a cell for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in columns])
    writer.writerows([csv_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: names that begin like one get an apostrophe."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not is_number(value):
        return f"'{value}"
    return value


def _encodable(name: str) -> str:
    """A name that UTF-8 can express; Linux allows file names of any bytes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
