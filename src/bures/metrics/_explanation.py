"""The result of `bures.explain`: numbers, and two ways of reading them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from bures.wording import listed, table_lines

__all__ = ["ClassTerms", "Explanation"]

ROWS_SHOWN = 12


@dataclass(frozen=True)
class ClassTerms:
    """What one class contributes.

    Attributes
    ----------
    name : object
        The class, as the caller names it.
    n_source, n_target : float
        Number of samples; for soft labels the sum of the probabilities.
    kernel_bures : float
        Squared kernel Bures distance between the samples of the class in the two domains.
    mean_term : float
        Squared distance between the means of the class in the two domains.
    change_without : float
        How the squared CKB distance changes when the class is left out of both domains, bandwidths kept.

    The last three are NaN where they are undefined: a class missing from one domain, or the only class.
    """

    name: Any
    n_source: float
    n_target: float
    kernel_bures: float
    mean_term: float
    change_without: float


@dataclass(frozen=True, repr=False)
class Explanation:
    r"""A squared CKB distance with its parts, returned by `bures.explain`.

    Attributes
    ----------
    squared_distance : float
        :math:`d^2_{CKB} = \mathrm{tr} R_s + \mathrm{tr} R_t - 2 F` (Theorem 5).
    trace_s, trace_t, fidelity : float
        The three terms.
    mean_term : float
        What `bures.ckw` adds: the distance of the conditional means. NaN with the ``"per-block"`` bandwidth.
    bandwidths : tuple of float or None
        :math:`\sigma^2` within the source, within the target and between them; None if the kernel has none.
    label_bandwidths : tuple of float or None
        :math:`\sigma_Y^2` of the source and of the target.
    eps : float
        The regulariser used.
    effective_rank_s, effective_rank_t : float
        :math:`(\mathrm{tr} R)^2 / \mathrm{tr} R^2`: how many directions carry the conditional covariance.
    n_source, n_target : int
        Number of samples.
    classes : tuple of ClassTerms
        One for each class; empty for a continuous conditioning variable.
    debiased : float
        The squared distance less its bias of order 1/n, as half samples show it.
    interval : tuple of float
        95 % interval around `debiased`, from the same half samples.
    null_mean, null_95 : float
        Mean and 95 % quantile of the squared distance when the domains are mixed within classes: what samples of this
        size give without any conditional shift. NaN without classes.
    n_permutations, n_bootstrap : int
        How many resamples stand behind these figures.
    method_error : float
        By how much an approximate `method` may have moved the squared distance at most; 0 for the exact ones.

    Examples
    --------
    >>> import numpy as np, bures
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> result = bures.explain(rng.normal(size=(60, 2)), y, rng.normal(size=(60, 2)), y, n_permutations=20)
    >>> result.missing_classes
    ()
    """

    squared_distance: float
    trace_s: float
    trace_t: float
    fidelity: float
    mean_term: float
    bandwidths: tuple[float, float, float] | None
    label_bandwidths: tuple[float, float] | None
    eps: float
    effective_rank_s: float
    effective_rank_t: float
    n_source: int
    n_target: int
    classes: tuple[ClassTerms, ...]
    debiased: float
    interval: tuple[float, float]
    null_mean: float
    null_95: float
    n_permutations: int
    n_bootstrap: int
    method_error: float = 0.0

    @property
    def distance(self) -> float:
        """The distance itself; rounding of the square below zero is clamped here."""
        return math.sqrt(max(self.squared_distance, 0.0))

    @property
    def ckw(self) -> float:
        """Squared conditional kernel Wasserstein distance: `squared_distance` plus `mean_term`."""
        return self.squared_distance + self.mean_term

    @property
    def missing_classes(self) -> tuple[Any, ...]:
        """Classes that occur in one domain only; they have no mean term."""
        return tuple(c.name for c in self.classes if min(c.n_source, c.n_target) == 0 < max(c.n_source, c.n_target))

    def _summary(self) -> list[tuple[str, str]]:
        rows = [
            ("squared distance", f"{self.squared_distance:.4g}   (distance {self.distance:.4g})"),
            ("  trace, source", f"{self.trace_s:.4g}   (effective rank {self.effective_rank_s:.1f})"),
            ("  trace, target", f"{self.trace_t:.4g}   (effective rank {self.effective_rank_t:.1f})"),
            ("  - 2 x fidelity", f"{-2 * self.fidelity:.4g}"),
        ]
        if self.method_error:
            rows.append(("approximation", f"within {self.method_error:.2g} of the exact squared distance"))
        if self.n_permutations and not math.isnan(self.null_mean):
            side = "above" if self.squared_distance > self.null_95 else "within"
            rows.append(
                (
                    "null level",
                    f"{self.null_mean:.4g} mean, {self.null_95:.4g} at 95 %   ({side}; "
                    f"{self.n_permutations} permutations within classes)",
                )
            )
        if self.n_bootstrap:
            low, high = self.interval
            rows.append(("debiased", f"{self.debiased:.4g}   (95 % interval {low:.4g} to {high:.4g})"))
        if not math.isnan(self.mean_term):
            rows.append(("conditional means", f"{self.mean_term:.4g}   (CKW {self.ckw:.4g})"))
        rows.append(("samples", f"{self.n_source} source, {self.n_target} target"))
        if self.bandwidths is not None:
            shown = self.bandwidths[:1] if len(set(self.bandwidths)) == 1 else self.bandwidths
            rows.append(("bandwidth", ", ".join(f"{value:.4g}" for value in shown)))
        if self.label_bandwidths is not None:
            rows.append(("label bandwidth", ", ".join(f"{value:.4g}" for value in self.label_bandwidths)))
        rows.append(("eps", f"{self.eps:.4g}"))
        if self.missing_classes:
            rows.append(("in one domain only", listed(self.missing_classes, ROWS_SHOWN)))
        return rows

    def _class_table(self) -> tuple[list[str], list[list[str]]]:
        header = ["class", "source", "target", "kernel Bures", "means", "change without"]
        ranked = sorted(self.classes, key=lambda c: -math.inf if math.isnan(c.kernel_bures) else c.kernel_bures)[::-1]
        rows = [
            [
                str(c.name),
                *(_number(value) for value in (c.n_source, c.n_target, c.kernel_bures, c.mean_term)),
                _number(c.change_without, signed=True),
            ]
            for c in ranked
        ]
        return header, rows

    def __repr__(self) -> str:
        lines = ["Conditional Kernel Bures", *(f"  {label:<20}{text}" for label, text in self._summary())]
        if self.classes:
            lines += ["", *table_lines(*self._class_table(), ROWS_SHOWN)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left;white-space:nowrap;padding-right:1em'>{escape(label.strip())}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in self._summary()
        )
        html = f"<div><strong>Conditional Kernel Bures</strong><table>{facts}</table>"
        if self.classes:
            header, rows = self._class_table()
            head = _html_row("th", header)
            body = "".join(_html_row("td", row) for row in rows)
            html += f"<table style='margin-top:1em'><thead>{head}</thead><tbody>{body}</tbody></table>"
        return html + "</div>"


def _html_row(tag: str, cells: list[str]) -> str:
    """A table row with its first cell to the left and numbers to the right."""
    styles = ["text-align:left", *["text-align:right;padding-left:1em"] * (len(cells) - 1)]
    return (
        "<tr>"
        + "".join(f"<{tag} style='{s}'>{escape(c)}</{tag}>" for s, c in zip(styles, cells, strict=True))
        + "</tr>"
    )


def _number(value: float, *, signed: bool = False) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:+.4g}" if signed else f"{value:.4g}"
