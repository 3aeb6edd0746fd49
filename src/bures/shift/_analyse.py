"""Which shift there is: the three differences measured, tested and put together."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bures.arrays import Array, check_count
from bures.devices import cpu_by_default
from bures.feature_maps import NystroemMap
from bures.metrics import MissingClassWarning
from bures.shift._label_test import label_test
from bures.shift._priors import BOOTSTRAP_UP_TO, ClassFrequencies, plausible_weights
from bures.shift._reading import Data, read_data
from bures.shift._report import ClassShift, Finding, ShiftReport
from bures.shift._words import NO_CLASS, TOO_DIFFERENT, advise, conditional_words, headline, label_words, marginal_words
from bures.testing import ShiftTest, conditional_test, marginal_test
from bures.testing._aggregate import holm
from bures.testing._run import check_test_options
from bures.wording import listed

__all__ = ["shift_report"]

FEWEST_AFTER_THINNING = 8
PLAUSIBLE = 9
"""Estimated class frequencies have an error; a shift has to be found with so many other plausible ones as well."""

Progress = Callable[[int, int], None]


@cpu_by_default()
def shift_report(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array | None = None,
    *,
    labels: Literal["true", "predicted"] | None = None,
    predicted_s: Array | None = None,
    classifier: Any = None,
    statistic: Literal["ckw", "ckb", "means"] = "ckw",
    n_permutations: int = 499,
    n_bootstrap: int = 500,
    level: float = 0.05,
    max_samples: int = 4000,
    seed: int = 0,
    progress: Progress | None = None,
) -> ShiftReport:
    r"""Tell label shift, marginal shift and conditional shift apart, class by class, in numbers and in words.

    Parameters
    ----------
    xs : array (n, d)
        Source features.
    ys : array (n,)
        True source classes, integers or strings.
    xt : array (m, d)
        Target features.
    yt : array (m,) or (m, K), optional
        True target classes, or predictions: a matrix of probabilities, `bures.testing.PredictedLabels`, or classes
        with ``labels="predicted"``. None has both domains predicted here, out of fold.
    labels : {None, "true", "predicted"}, optional
        What ``yt`` is. None takes a vector for true labels and a matrix for predictions.
    predicted_s : array (n,) or (n, K), optional
        With a predicted ``yt``: what the same classifier predicts for the source, out of fold. Needed then, because
        its errors must look alike in both domains.
    classifier : scikit-learn classifier, optional
        What predicts where ``yt`` is None. None is a logistic regression.
    statistic : {"ckw", "ckb", "means"}, optional
        The distance that the conditional test uses.
    n_permutations, level, seed : optional
        As in `bures.conditional_test`, for all three tests. As their p-values are corrected for three questions,
        nothing can be found with fewer than 3 / level - 1 permutations, 59 at a level of 0.05; a note says so.
    n_bootstrap : int, optional
        Resamples behind the interval of the class frequencies; 0 leaves it out.
    max_samples : int, optional
        Larger domains are looked at through so many samples of theirs, drawn at random.
    progress : callable, optional
        Called with the number of orders done and their total, for each test.

    Returns
    -------
    ShiftReport
        ``print`` it, or take ``to_json()``, ``to_frame()`` or ``to_html()``.

    See Also
    --------
    conditional_test, marginal_test : two of the tests by themselves.

    Notes
    -----
    **Label shift**: a permutation test of :math:`\chi^2` between class counts. Without target labels, between counts
    of predicted classes, and the target's frequencies are estimated by black-box shift estimation, which is right
    where P(X|Y) is the same. **Marginal shift**: an MMD test over several bandwidths. **Conditional shift**:
    `conditional_test`. With predictions, a label shift alone changes :math:`P(X \mid \hat Y)` where the classifier
    errs; so if the predicted frequencies differ, source samples are first thinned at random to the estimated target
    frequencies, by their true classes. These are estimates: a shift has to be found with others that the samples allow
    for as well, by a bootstrap, and the p-value is the largest of them; where a shift is found, this takes ten
    conditional tests in place of one. The three p-values are corrected for their number (Holm).

    Examples
    --------
    >>> import bures
    >>> print(bures.shift_report(*bures.data.exchanged_regions(120), n_permutations=99))
    The classes themselves, P(X|Y), differ between the domains, although as a whole the features look alike.
    ...
    """
    check_test_options(n_permutations, level, seed)
    max_samples = check_count("max_samples", max_samples)
    n_bootstrap = check_count("n_bootstrap", n_bootstrap, minimum=0, alternatives="; 0 leaves it out")
    rng = np.random.default_rng(seed)
    data = read_data(xs, ys, xt, yt, labels, predicted_s, classifier, max_samples, rng, seed)
    options: dict[str, Any] = {"n_permutations": n_permutations, "level": level, "seed": seed, "progress": progress}

    count_s, count_t = data.counts()
    _, label_p = label_test(count_s, count_t, n_permutations, rng)
    frequencies = data.frequencies(n_bootstrap, rng)
    marginal = marginal_test(data.xs, data.xt, bandwidth="aggregate", **options)
    conditional, said = _conditional(data, frequencies, label_p <= level, statistic, options, rng)
    notes = (f"{said}, so that P(X|Y) could not be compared" if conditional is None else said,) if said else ()

    p_values = [label_p, marginal.p_value, 1.0 if conditional is None else conditional.p_value]
    adjusted = holm(p_values)
    share = _label_share(data, frequencies) if adjusted[1] <= level else math.nan
    findings = _findings(
        data, frequencies, marginal, said if conditional is None else conditional, p_values, adjusted, share, level
    )
    return ShiftReport(
        headline=headline(findings),
        findings=tuple(findings.values()),
        advice=advise(findings, predicted=data.predicted),
        classes=_classes(data, count_s, count_t, frequencies, conditional),
        marginal=marginal,
        conditional=conditional,
        label_share=share,
        labels="predicted" if data.predicted else "true",
        source_accuracy=float((data.given_s == data.true_s).mean()) if data.predicted else math.nan,
        n_source=len(data.xs),
        n_target=len(data.xt),
        level=float(level),
        notes=(*data.notes, *_too_few(n_permutations, level), *notes, *_general_notes(data, findings, conditional)),
    )


def _conditional(
    data: Data,
    frequencies: ClassFrequencies,
    label_shift: bool,
    statistic: str,
    options: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[ShiftTest | None, str]:
    """The conditional test, after a label shift has been taken out of predicted labels, and what to know of it.

    None, and why, where there is nothing to compare.
    """
    count_s, count_t = data.counts()
    if not ((count_s > 0) & (count_t > 0)).any():
        return None, NO_CLASS
    if not (data.predicted and label_shift and frequencies.weights.max() > 0):
        return _test_of(data, np.ones(len(data.xs), dtype=bool), statistic, options), ""
    chance = rng.random(len(data.xs))
    chosen: tuple[float, ShiftTest, int] | None = None
    others = plausible_weights(data.joint(), count_t, PLAUSIBLE, rng)
    for weights in (frequencies.weights, *others):
        of_samples = weights[data.true_s]
        keep = chance * of_samples.max() < of_samples
        kept = np.bincount(data.given_s[keep], minlength=len(data.names))
        if keep.sum() < FEWEST_AFTER_THINNING or not ((kept > 0) & (count_t > 0)).any():
            return None, TOO_DIFFERENT
        result = _test_of(data, keep, statistic, options)
        if chosen is None or result.p_value > chosen[0]:
            chosen = result.p_value, result, int(keep.sum())
        if result.p_value > options["level"]:
            break  # no shift is found; were it one, all of them would have to agree
    assert chosen is not None
    return chosen[1], (
        f"for the comparison within predicted classes the source was thinned to {chosen[2]} samples, so that its class "
        f"frequencies are those of the target, which are estimates: a shift counts as found where it is found with the "
        f"estimate and with {PLAUSIBLE} others that the samples allow for, and the p-value is the largest"
    )


def _test_of(data: Data, keep: NDArray[np.bool_], statistic: str, options: dict[str, Any]) -> ShiftTest:
    """The conditional test of these source samples and all of the target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingClassWarning)  # the report says so itself
        return conditional_test(
            data.xs[torch.from_numpy(np.flatnonzero(keep)).to(data.xs.device)],
            data.named(data.given_s[keep]),
            data.xt,
            data.named(data.given_t),
            statistic=statistic,  # type: ignore[arg-type]
            labels="predicted" if data.predicted else "true",
            **options,
        )


def _findings(
    data: Data,
    frequencies: ClassFrequencies,
    marginal: ShiftTest,
    conditional: ShiftTest | str,
    p_values: list[float],
    adjusted: list[float],
    share: float,
    level: float,
) -> dict[str, Finding]:
    size = frequencies.total_variation
    words = label_words(adjusted[0], size, level, predicted=data.predicted)
    found = {"label": Finding("label", adjusted[0] <= level, p_values[0], adjusted[0], size, words)}
    words = marginal_words(adjusted[1], marginal.effect_size, level, share)
    found["marginal"] = Finding("marginal", adjusted[1] <= level, p_values[1], adjusted[1], marginal.effect_size, words)
    if isinstance(conditional, str):  # why there is none
        found["conditional"] = Finding("conditional", None, math.nan, math.nan, math.nan, conditional)
        return found
    shifted = conditional.shifted_classes
    effect, tested = conditional.effect_size, len(conditional.classes)
    words = conditional_words(adjusted[2], effect, level, shifted, tested, predicted=data.predicted)
    found["conditional"] = Finding("conditional", adjusted[2] <= level, p_values[2], adjusted[2], effect, words)
    return found


def _classes(
    data: Data,
    count_s: NDArray[np.int64],
    count_t: NDArray[np.int64],
    frequencies: ClassFrequencies,
    conditional: ShiftTest | None,
) -> tuple[ClassShift, ...]:
    tested = {} if conditional is None else {row.name: row for row in conditional.classes}
    rows = []
    for c, name in enumerate(data.names):
        row = tested.get(name)
        rows.append(
            ClassShift(
                name=name,
                n_source=int(count_s[c]),
                n_target=int(count_t[c]),
                frequency_source=float(frequencies.source[c]),
                frequency_target=float(frequencies.target[c]),
                low=float(frequencies.low[c]),
                high=float(frequencies.high[c]),
                effect_size=math.nan if row is None else row.effect_size,
                p_value=math.nan if row is None else row.p_value,
                p_adjusted=math.nan if row is None else row.p_adjusted,
            )
        )
    return tuple(rows)


def _label_share(data: Data, frequencies: ClassFrequencies) -> float:
    """How much of the squared MMD goes away when the source is weighted to the target's class frequencies.

    Both squared distances are less their bias, so that a share of noise is not taken for one.
    """
    pooled = len(data.xs) + len(data.xt)
    phi = NystroemMap.fit(data.xs, data.xt, n_landmarks=min(128, pooled), landmarks="pivoted-cholesky")
    source, target = phi.features(data.xs), phi.features(data.xt)

    def squared_mmd(weights: Tensor) -> float:
        weights = weights / weights.sum()
        mean_s, mean_t = weights @ source, target.mean(dim=0)
        noise = weights.square() @ (source - mean_s).square().sum(dim=1)
        noise = noise + (target - mean_t).square().sum(dim=1).mean() / len(target)
        return float((mean_s - mean_t).square().sum() - noise)

    ratio = torch.from_numpy(frequencies.weights[data.true_s]).to(source)
    total = squared_mmd(torch.ones_like(ratio))
    if total <= 0 or float(ratio.sum()) <= 0:
        return math.nan
    return min(1.0, max(0.0, 1 - squared_mmd(ratio) / total))


def _too_few(n_permutations: int, level: float) -> tuple[str, ...]:
    """A note where the three questions together leave no p-value that could be small enough."""
    questions = 3
    if questions / (1 + n_permutations) <= level:
        return ()
    return (
        f"no shift can be found with {n_permutations} permutations: with {questions} questions at level {level:g}, "
        f"p-values have to be at most {level / questions:.2g}, which takes at least "
        f"{math.ceil(questions / level - 1e-9) - 1} permutations",
    )


def _general_notes(data: Data, findings: dict[str, Finding], conditional: ShiftTest | None) -> tuple[str, ...]:
    notes = []
    if data.predicted:
        right = float((data.given_s == data.true_s).mean())
        notes.append(
            f"target labels are predictions; on the source {right:.0%} of them are right. "
            "A class that has moved onto another is predicted as that one, and its shift may stay hidden"
        )
        if findings["label"].found and findings["conditional"].found:
            notes.append(
                "the target's class frequencies are estimated as if P(X|Y) were the same, and it is not: rough"
            )
        if len(data.names) > BOOTSTRAP_UP_TO:
            notes.append(f"{len(data.names)} classes: their frequencies have no interval")
    if len(data.names) == 1:
        notes.append(f"there is one class only, {data.names[0]}: there can be no label shift, and P(X|Y) is P(X)")
    count_s, count_t = data.counts()
    for counts, others, domain in ((count_s, count_t, "source"), (count_t, count_s, "target")):
        missing = [data.names[c] for c in np.flatnonzero((counts == 0) & (others > 0))]
        if missing:
            verb = "predicted in" if data.predicted else "in"
            notes.append(f"not {verb} the {domain}: {listed(missing, noun='class')}; P(X|Y) was not compared there")
    if conditional is not None:
        alone = conditional.shifted_classes
        if alone and len(data.names) > 1 and not findings["conditional"].found:
            notes.append(
                f"{listed(alone, noun='class')} would count as shifted if classes were all that was asked; the test of "
                "all classes together does not confirm it"
            )
        skip = "there is one class only"
        notes += [note for note in conditional.notes if not note.startswith(skip)]
    return tuple(dict.fromkeys(notes))
