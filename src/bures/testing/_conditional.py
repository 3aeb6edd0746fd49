"""The test of whether P(X|Y) is the same in both domains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from bures.arrays import Array, as_feature_pair, check_choice, check_flags, full_precision, is_tensor_call
from bures.devices import cpu_by_default
from bures.factors import check_eps
from bures.kernels import Kernel
from bures.labels import Conditioning, read_labels
from bures.metrics import MissingClassWarning
from bures.testing._predictions import label_kind, unwrap
from bures.testing._representation import Bandwidths, check_kernel_options
from bures.testing._result import ShiftTest
from bures.testing._run import CLASSES_TESTED, Question, check_test_options, run_test
from bures.wording import listed

__all__ = ["conditional_test"]

QUESTIONS = {
    "ckw": Question("conditional", "ckw", spread=True, means=True),
    "ckb": Question("conditional", "ckb", spread=True, means=False),
    "means": Question("conditional", "means", spread=False, means=True),
}


@cpu_by_default()
def conditional_test(
    xs: Array,
    ys: Array,
    xt: Array,
    yt: Array,
    *,
    statistic: Literal["ckw", "ckb", "means"] = "ckw",
    n_permutations: int = 999,
    level: float = 0.05,
    seed: int = 0,
    labels: str | tuple[str, str] | None = None,
    conditioning: Conditioning = None,
    kernel: Kernel = "gaussian",
    bandwidth: Bandwidths = "shared",
    eps: str | float = 1e-2,
    n_features: str | int | None = "auto",
    per_class: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ShiftTest:
    r"""Test whether P(X|Y) is the same in two domains, by permutations within classes.

    Parameters
    ----------
    xs : array (n, d)
        Source features: NumPy array, torch tensor, or what NumPy reads.
    ys : array (n,)
        Source classes, integers or strings, or `bures.testing.PredictedLabels`.
    xt : array (m, d)
        Target features.
    yt : array (m,)
        Target classes. Without true ones, predictions *in both domains*: see `bures.testing.out_of_fold_labels`.
    statistic : {"ckw", "ckb", "means"}, optional
        ``"ckw"`` sees means and covariances of each class. ``"ckb"`` sees covariances alone and cannot tell swapped
        classes. ``"means"``, what `bures.ckw` adds to `bures.ckb`, is an MMD within each class: it needs no spectrum
        and is many times faster.
    n_permutations : int, optional
        Number of permutations B. The smallest possible p-value is 1 / (1 + B).
    level : float, optional
        The level: probability of finding a shift where there is none.
    seed : int, optional
        Seed of the permutations and of the landmarks.
    labels : {None, "true", "predicted"} or pair of these, optional
        What ``ys`` and ``yt`` are. None takes plain arrays for true labels, and matrices and `PredictedLabels` for
        predictions. A mixture of the two is an error.
    conditioning : {None, "hard"}, optional
        ``"hard"`` reduces rows of class probabilities to their most probable class. Without it they are an error, and
        so is a continuous variable: permutation within classes needs classes.
    kernel : {"gaussian", "laplacian", "linear"} or callable, optional
        Kernel on the features, as in `bures.ckb`.
    bandwidth : {"shared", "median", "aggregate"}, float or list of float, optional
        :math:`\sigma^2`, from the pooled sample. ``"aggregate"`` tests with several at once, a tenth to three times
        the shared one, and several numbers do the same with these: the statistic is the largest of the standardised
        distances, and the level is exact.
    eps : float or "auto", optional
        Regulariser, as in `bures.ckb`.
    n_features : {"auto"}, int or None, optional
        Nyström features that stand for the kernel, with landmarks from the pooled sample. ``"auto"`` uses the kernel
        itself up to 512 samples in both domains together and 128 features above. None uses the kernel itself.
    per_class : bool, optional
        Whether to test every class by itself too. None does for up to 200 classes.
    progress : callable, optional
        Called with the number of orders done and their total.

    Returns
    -------
    ShiftTest
        Frozen: p-value, statistic, null sample, effect size, classes; ``print`` it, or call its ``plot``.

    Warns
    -----
    MissingClassWarning
        A class occurs in one domain only; its samples are left out.

    See Also
    --------
    marginal_test : compares P(X), without labels.
    shift_report : tells label shift, marginal and conditional shift apart.

    Notes
    -----
    Under the null hypothesis the samples of a class are exchangeable between the domains whatever the class
    frequencies are, so a difference in P(Y) alone is not found: the rejection rate is the level, for any sample size.
    This rests on kernel, bandwidth and landmarks knowing nothing of the domains; they are chosen from the pooled
    samples, taken without their order. It also rests on independent samples: copies of one, or several of one person,
    lie in one domain together and look like a shift; keep one of each.

    A class by itself is compared by the same statistic without its label part: kernel Bures, MMD for
    ``"means"``, their sum for ``"ckw"``; a class with more than 64 samples in both domains, along the 64
    leading directions of them.

    With predicted labels the question is whether :math:`P(X \mid \hat Y)` is the same. A shift in P(Y) alone changes
    it too where the classifier errs; `shift_report` weights this out.

    Examples
    --------
    >>> import bures
    >>> print(bures.conditional_test(*bures.data.drifting_class(100, drift=1.5), n_permutations=199))
    Two-sample test: P(X|Y) differs at level 0.05
      ckw               ...
    """
    check_choice("statistic", statistic, tuple(QUESTIONS))
    if per_class is not None:
        check_flags(per_class=per_class)
    check_test_options(n_permutations, level, seed)
    check_kernel_options(kernel, bandwidth, n_features)
    check_eps(eps)
    if yt is None or ys is None:
        name = "ys" if ys is None else "yt"
        raise ValueError(
            f"{name} is None; a test of P(X|Y) needs labels in both domains. Without true ones, predict both: "
            "ys, yt = bures.testing.out_of_fold_labels(xs, ys, xt). Or compare P(X) with bures.marginal_test"
        )
    kind = label_kind(ys, yt, labels)
    ys, yt = unwrap(ys), unwrap(yt)
    with full_precision(xs), torch.no_grad():
        tensor_call = is_tensor_call(xs=xs, ys=ys, xt=xt, yt=yt)
        s, t = (x.detach().double() for x in as_feature_pair(xs, xt))
        source, target = read_labels(ys, yt, conditioning, len(s), len(t), like=s)
        for name, side in (("ys", source), ("yt", target)):
            if side.kind != "hard":
                raise ValueError(_refusal(name, side.kind))
        strata = torch.cat([source.values, target.values])
        kept, names, missing = _shared_classes(source.values, target.values, source.class_names())
        numbering = torch.full((source.n_classes or 0,), -1, dtype=torch.int64, device=strata.device)
        numbering[kept] = torch.arange(len(kept), device=strata.device)
        strata = numbering[strata]
        present = strata >= 0
        n_source = int(present[: len(s)].sum())
        return run_test(
            torch.cat([s, t])[present],
            strata[present],
            n_source,
            names,
            QUESTIONS[statistic],
            kernel=kernel,
            bandwidth=bandwidth,
            eps=eps,
            n_features=n_features,
            n_permutations=n_permutations,
            level=level,
            seed=seed,
            per_class=len(names) <= CLASSES_TESTED if per_class is None else bool(per_class),
            labels=kind,
            missing=missing,
            notes=_notes(names, per_class),
            numpy_callable=not tensor_call,
            progress=progress,
        )


def _refusal(name: str, kind: str) -> str:
    if kind == "soft":
        return (
            f"{name} holds class probabilities; samples are permuted within classes, which needs one class for each. "
            "Pass conditioning='hard' to take the most probable one"
        )
    return (
        f"{name} is continuous; samples are permuted within classes, and a continuous variable has none. "
        "Cut it into intervals with the same edges in both domains and pass the number of the interval: the test is "
        "then of P(X | interval)"
    )


def _shared_classes(ys: Tensor, yt: Tensor, names: list[Any]) -> tuple[Tensor, list[Any], tuple[Any, ...]]:
    """Numbers and names of the classes of both domains, and the names of those in one only."""
    count_s, count_t = torch.bincount(ys, minlength=len(names)), torch.bincount(yt, minlength=len(names))
    kept = ((count_s > 0) & (count_t > 0)).nonzero().flatten()
    missing = ((count_s > 0) != (count_t > 0)).nonzero().flatten().tolist()
    if len(kept) == 0:
        raise ValueError(
            f"no class occurs in both domains (ys has {int((count_s > 0).sum())}, yt {int((count_t > 0).sum())} "
            "others); name the classes alike in both, or compare P(X) with bures.marginal_test"
        )
    left_out = tuple(names[c] for c in missing)
    if left_out:
        verb, whose = ("occurs", "its") if len(left_out) == 1 else ("occur", "their")
        named = listed(map(repr, left_out), noun="class")
        message = f"{named} {verb} in one domain only; {whose} samples are left out of the test"
        warnings.warn(message, MissingClassWarning, stacklevel=3)
    return kept, [names[c] for c in kept.tolist()], left_out


def _notes(names: list[Any], per_class: bool | None) -> tuple[str, ...]:
    notes = []
    if len(names) == 1:
        notes.append(f"there is one class only, {names[0]}: its P(X|Y) is P(X)")
    if per_class is None and len(names) > CLASSES_TESTED:
        notes.append(f"{len(names)} classes: they were not tested one by one, pass per_class=True for that")
    return tuple(notes)
