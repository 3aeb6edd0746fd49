"""What `bures.shift_report` has found, and the forms it can be had in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bures.arrays import check_choice
from bures.files import check_output, to_json, write_text
from bures.testing import ShiftTest
from bures.testing._plain import plain
from bures.wording import table_lines

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Advice", "ClassShift", "Finding", "ShiftReport", "has_shifted"]

CLASSES_SHOWN = 12


@dataclass(frozen=True)
class Finding:
    """One of the three differences: of P(Y), of P(X), of P(X|Y).

    Attributes
    ----------
    shift : {"label", "marginal", "conditional"}
    found : bool or None
        Whether it is significant at the level after correction for three questions; None where it could not be asked.
    p_value, p_adjusted : float
        As it came, and corrected (Holm).
    size : float
        How large: for labels the total variation distance between the class frequencies, otherwise the effect size of
        the test (see `bures.ShiftTest`).
    words : str
        The same in a sentence.
    """

    shift: str
    found: bool | None
    p_value: float
    p_adjusted: float
    size: float
    words: str


@dataclass(frozen=True)
class Advice:
    """A method to try, or one to avoid, and why.

    Attributes
    ----------
    method : str
        Names that ``bures adapt --method`` takes, or a step in words.
    why : str
    avoid : bool
        Whether this is what not to do.
    """

    method: str
    why: str
    avoid: bool = False


@dataclass(frozen=True)
class ClassShift:
    """What differs in one class.

    Attributes
    ----------
    name : object
    n_source, n_target : int
        Samples with this label; with this prediction, where labels were predicted.
    frequency_source, frequency_target : float
        How frequent the class is; in a target without labels as estimated from predictions.
    low, high : float
        Interval of 95 % for the target's frequency, by the bootstrap.
    effect_size, p_value, p_adjusted : float
        The test of P(X|Y) for this class (see `bures.testing.ClassTest`); NaN where it took no part.
    """

    name: Any
    n_source: int
    n_target: int
    frequency_source: float
    frequency_target: float
    low: float
    high: float
    effect_size: float
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, repr=False)
class ShiftReport:
    """Which shift there is between two domains, returned by `bures.shift_report`.

    Attributes
    ----------
    headline : str
        What was found, in one sentence.
    findings : tuple of Finding
        Label shift, marginal shift, conditional shift.
    advice : tuple of Advice
        What to try, the first first.
    classes : tuple of ClassShift
        Every class of either domain.
    marginal, conditional : ShiftTest
        The tests in full; ``conditional`` is None where P(X|Y) could not be compared.
    label_share : float
        How much of the difference in P(X) goes away when the source is weighted to the target's class frequencies,
        from 0 to 1; NaN where P(X) was not found to differ.
    labels : {"true", "predicted"}
        What the target's labels were.
    source_accuracy : float
        Share of the source that is predicted rightly, out of fold; NaN with true labels.
    n_source, n_target : int
        Samples looked at.
    level : float
    notes : tuple of str
        What limits the findings.

    Examples
    --------
    >>> import bures
    >>> report = bures.shift_report(*bures.data.drifting_class(120, drift=2.0), n_permutations=99)
    >>> [finding.shift for finding in report.findings if finding.found]
    ['marginal', 'conditional']
    >>> report.to_frame().query("p_adjusted <= 0.05")["class"].tolist()
    [0]
    """

    headline: str
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]
    classes: tuple[ClassShift, ...]
    marginal: ShiftTest
    conditional: ShiftTest | None
    label_share: float
    labels: str
    source_accuracy: float
    n_source: int
    n_target: int
    level: float
    notes: tuple[str, ...] = ()

    @property
    def shifted(self) -> bool:
        """Whether any shift was found."""
        return any(finding.found for finding in self.findings)

    def __repr__(self) -> str:
        found = [finding.shift for finding in self.findings if finding.found]
        return f"ShiftReport({', '.join(found) or 'no shift found'}; {self.n_source} source, {self.n_target} target)"

    def __str__(self) -> str:
        labels = "true target labels" if self.labels == "true" else "target labels predicted"
        lines = [self.headline, "", f"  {self.n_source} source and {self.n_target} target samples, {labels}", ""]
        lines += [
            f"  {finding.shift + ' shift':<19}{MARKS[finding.found]:<11}{finding.words}" for finding in self.findings
        ]
        if len(self.classes) > 1:
            lines += ["", *self._class_lines()]
        lines += ["", "What to do"]
        lines += [f"  {'avoid' if tip.avoid else 'try'} {tip.method}: {tip.why}" for tip in self.advice]
        if self.notes:
            lines += ["", "To keep in mind", *(f"  - {note}" for note in self.notes)]
        return "\n".join(lines)

    def ranked_classes(self) -> list[ClassShift]:
        """Classes from the most to the least shifted; those that were not tested last."""
        return sorted(self.classes, key=lambda row: (math.isnan(row.p_adjusted), row.p_adjusted, -row.effect_size))

    def _class_lines(self) -> list[str]:
        rows = []
        for row in self.ranked_classes():
            interval = "" if math.isnan(row.low) else f"{row.low:.1%} to {row.high:.1%}"
            numbers = ["-" if math.isnan(v) else f"{v:.3g}" for v in (row.effect_size, row.p_adjusted)]
            mark = "shifted" if has_shifted(self, row) else ""
            shares = [f"{row.frequency_source:.1%}", f"{row.frequency_target:.1%}"]
            rows.append([str(row.name), *shares, interval, *numbers, mark])
        return table_lines(["class", "source", "target", "95 %", "effect size", "p (Holm)", ""], rows, CLASSES_SHOWN)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain Python objects."""
        found: dict[str, Any] = plain(self)
        for name in ("marginal", "conditional"):
            test = getattr(self, name)
            found[name] = None if test is None else test.to_dict()
        return found | {"shifted": self.shifted}

    def to_json(self, *, indent: int | None = 1) -> str:
        """The report as JSON; numbers that are not defined are null."""
        return to_json(self.to_dict(), indent=indent)

    def to_frame(self, what: Literal["classes", "findings"] = "classes") -> pd.DataFrame:
        """The classes, or the three findings, as a pandas table.

        Parameters
        ----------
        what : {"classes", "findings"}, optional

        Returns
        -------
        pandas.DataFrame
            One row for each class, with its frequencies and its test, or one for each finding.
        """
        import pandas as pd

        check_choice("what", what, ("classes", "findings"))
        rows = self.classes if what == "classes" else self.findings
        return pd.DataFrame([vars(row) for row in rows]).rename(columns={"name": "class"})

    def to_html(self, path: str | Path | None = None, *, title: str | None = None) -> str:
        """The report as one HTML page that needs nothing else: no network, no other files.

        Parameters
        ----------
        path : path, optional
            A file to write, whole or not at all.
        title : str, optional
            What has been compared, as the page is to name it.

        Returns
        -------
        str
            The page.
        """
        from bures.shift._page import render

        file = None if path is None else check_output(path)
        page = render(self, title)
        if file is not None:
            write_text(file, page)
        return page


MARKS = {True: "found", False: "not found", None: "not asked"}


def has_shifted(report: ShiftReport, row: ClassShift) -> bool:
    """Whether a class differs in a report that found a conditional shift; where it found none, no class is marked."""
    found = any(finding.found for finding in report.findings if finding.shift == "conditional")
    return found and row.p_adjusted <= report.level
