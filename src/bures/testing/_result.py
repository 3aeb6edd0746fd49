"""What a two-sample test has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bures.arrays import check_flags
from bures.wording import listed, table_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ClassTest", "ShiftTest"]

CLASSES_SHOWN = 12


@dataclass(frozen=True)
class ClassTest:
    """The test of one class alone.

    Attributes
    ----------
    name : object
        The class, as the caller names it.
    n_source, n_target : int
        Its samples.
    statistic : float
        The statistic between the samples of the class in the two domains.
    p_value : float
        Its p-value by the same permutations.
    p_adjusted : float
        The p-value corrected for the number of classes (Holm): below the level for the classes that have shifted,
        with a probability of at most the level that any of them has not.
    effect_size : float
        As in `bures.ShiftTest`, of the class alone.

    Examples
    --------
    >>> import bures
    >>> result = bures.conditional_test(*bures.data.drifting_class(60, drift=2.0), n_permutations=99)
    >>> [row.name for row in result.classes if row.p_adjusted <= 0.05]
    [0]
    """

    name: Any
    n_source: int
    n_target: int
    statistic: float
    p_value: float
    p_adjusted: float
    effect_size: float


@dataclass(frozen=True, eq=False, repr=False)
class ShiftTest:
    r"""The outcome of `bures.conditional_test` or `bures.marginal_test`.

    Attributes
    ----------
    kind : {"conditional", "marginal"}
        Whether P(X|Y) or P(X) was compared.
    statistic_name : {"ckw", "ckb", "means", "mmd", "kernel-bures"}
    statistic : float
        The squared distance; for several bandwidths, the largest of the standardised squared distances.
    p_value : float
        :math:`(1 + \#\{T_b \ge T\}) / (1 + B)` over B permutations; never 0.
    null : array (B,)
        The statistic of the permuted samples: what it is without a shift.
    effect_size : float
        How far the squared distance is above its mean without a shift, in units of the variance within classes (in
        the space of the kernel). About 0 without a shift, whatever the number of samples; may be negative. For
        several bandwidths, the largest.
    z_score : float
        The same distance in standard deviations of `null`: how sure, not how large.
    classes : tuple of ClassTest
        One for each class of both domains; empty where they were not asked for.
    missing_classes : tuple
        Classes of one domain only; they took no part.
    level : float
        The level of the test.
    n_source, n_target, n_permutations : int
        Samples and permutations that took part.
    bandwidths : tuple of float
        :math:`\sigma^2` of the kernels; empty if the kernel has none.
    n_features : int or None
        Number of features that stand for the kernel; None if the kernel itself was used.
    labels : {"true", "predicted", "none"}
        What was conditioned on.
    seed : int
        Seed of the permutations.
    notes : tuple of str
        What limits the outcome: few samples, few permutations, rare classes.

    Examples
    --------
    >>> import bures
    >>> result = bures.conditional_test(*bures.data.drifting_class(100, drift=2.0), n_permutations=199)
    >>> result.rejected, result.p_value
    (True, 0.005)
    >>> len(result.null)
    199
    """

    kind: str
    statistic_name: str
    statistic: float
    p_value: float
    null: NDArray[np.float64]
    effect_size: float
    z_score: float
    classes: tuple[ClassTest, ...]
    missing_classes: tuple[Any, ...]
    level: float
    n_source: int
    n_target: int
    n_permutations: int
    bandwidths: tuple[float, ...]
    n_features: int | None
    labels: str
    seed: int
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.null.setflags(write=False)

    @property
    def rejected(self) -> bool:
        """Whether a shift was found at the level."""
        return self.p_value <= self.level

    @property
    def shifted_classes(self) -> tuple[Any, ...]:
        """Classes found to have shifted, at the level after correction for their number."""
        return tuple(row.name for row in self.classes if row.p_adjusted <= self.level)

    def __repr__(self) -> str:
        return (
            f"ShiftTest({self.kind}, {self.statistic_name}={self.statistic:.4g}, p_value={self.p_value:.3g}, "
            f"n_permutations={self.n_permutations})"
        )

    def __str__(self) -> str:
        what = "P(X|Y)" if self.kind == "conditional" else "P(X)"
        verdict = f"{what} differs" if self.rejected else f"no difference in {what} found"
        several = "the largest of several, standardised" if len(self.bandwidths) > 1 else "squared distance"
        kernel = "exact kernel" if self.n_features is None else f"{self.n_features} features"
        facts = [
            (self.statistic_name, f"{self.statistic:.4g}   ({several}; {kernel})"),
            ("without a shift", f"{self.null.mean():.4g} mean, {np.quantile(self.null, 0.95):.4g} at 95 %"),
            ("p-value", f"{self.p_value:.3g}   ({self.n_permutations} permutations)"),
            ("effect size", f"{self.effect_size:.3g}   ({self.z_score:.1f} standard deviations above no shift)"),
            ("samples", f"{self.n_source} source, {self.n_target} target"),
        ]
        if self.labels == "predicted":
            facts.append(("labels", "predicted out of fold, in both domains"))
        if self.missing_classes:
            facts.append(("left out", f"{listed(self.missing_classes, CLASSES_SHOWN)}   (in one domain only)"))
        lines = [f"Two-sample test: {verdict} at level {self.level:g}"]
        lines += [f"  {label:<18}{text}" for label, text in facts]
        if self.classes:
            lines += ["", *self._class_lines()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _class_lines(self) -> list[str]:
        rows = []
        for row in sorted(self.classes, key=lambda row: (row.p_adjusted, -row.effect_size)):
            mark = "shifted" if row.p_adjusted <= self.level else ""
            numbers = [f"{row.effect_size:.3g}", f"{row.p_value:.3g}", f"{row.p_adjusted:.3g}"]
            rows.append([str(row.name), str(row.n_source), str(row.n_target), *numbers, mark])
        return table_lines(["class", "source", "target", "effect size", "p", "p (Holm)", ""], rows, CLASSES_SHOWN)

    def to_dict(self, *, null: bool = False) -> dict[str, Any]:
        """What was found, as plain Python objects for JSON; the null sample only if ``null`` asks for it."""
        check_flags(null=null)
        from bures.testing._plain import plain

        found: dict[str, Any] = plain(self)
        found["rejected"] = self.rejected
        if not null:
            del found["null"]
        return found

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the null sample as a histogram, with the observed statistic and the value it takes to reject.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; None makes a figure.

        Returns
        -------
        matplotlib Axes
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(6, 3.4), layout="constrained")[1] if ax is None else ax
        # Not bins="auto", which makes as many as memory holds of values that differ by rounding but for a few.
        low, high = float(self.null.min()), float(self.null.max())
        room = 1e-9 * max(abs(low), abs(high))
        bins = max(5, min(60, round(len(self.null) ** 0.5)))
        axes.hist(
            self.null,
            bins,
            range=(low - room, high + room),
            color="#9ecae1",
            edgecolor="white",
            linewidth=0.4,
            label="without a shift",
        )
        # The p-value counts the observed value too, so that the quantile is that of 1 + B values.
        threshold = float(np.quantile(np.append(self.null, self.statistic), 1 - self.level, method="inverted_cdf"))
        axes.axvline(threshold, color="#636363", linestyle=":", label=f"needed at level {self.level:g}")
        colour = "#b2182b" if self.rejected else "#2166ac"
        axes.axvline(self.statistic, color=colour, linewidth=2, label=f"observed, p = {self.p_value:.3g}")
        axes.set(xlabel=self.statistic_name, ylabel="permutations", yticks=[])
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.margins(x=0.04, y=0.3)  # room for the legend above the bars
        axes.legend(loc="upper center", ncols=3, fontsize=8, edgecolor="none", columnspacing=1.2, handlelength=1.4)
        return axes
