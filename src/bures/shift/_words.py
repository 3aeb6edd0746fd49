"""Numbers of a shift report in plain words: what was found, how sure it is, what to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bures.shift._report import Advice, Finding
from bures.wording import listed

__all__ = ["NO_CLASS", "TOO_DIFFERENT", "advise", "conditional_words", "headline", "label_words", "marginal_words"]

SMALL = 0.05  # shifts below this are called so


def evidence(p_value: float, level: float) -> str:
    """How sure, in words."""
    if p_value > level:
        return "no evidence"
    if p_value <= 0.001:
        return "very strong evidence"
    return "strong evidence" if p_value <= 0.01 else "evidence"


def _size(value: float, large: float) -> str:
    return "small" if value < SMALL else "large" if value >= large else "moderate"


def label_words(p_value: float, size: float, level: float, *, predicted: bool) -> str:
    """The sentence on P(Y)."""
    what = "that the frequencies of predicted classes differ" if predicted else "that the class frequencies differ"
    text = f"{evidence(p_value, level)} {what} (p = {p_value:.2g})"
    if p_value <= level:
        estimated = "an estimated " if predicted else ""
        text += f"; {estimated}{size:.0%} of the samples would have to change class, a {_size(size, 0.2)} shift"
    return text


def marginal_words(p_value: float, size: float, level: float, label_share: float) -> str:
    """The sentence on P(X)."""
    text = f"{evidence(p_value, level)} that the features differ as a whole (p = {p_value:.2g})"
    if p_value <= level:
        text += f", a {_size(size, 0.25)} effect ({size:.2g})"
        if label_share >= 0.05:
            text += f"; class frequencies explain {label_share:.0%} of it"
    return text


def conditional_words(
    p_value: float, size: float, level: float, shifted: Sequence[Any], n_classes: int, *, predicted: bool
) -> str:
    """The sentence on P(X|Y)."""
    given = "predicted classes" if predicted else "classes"
    text = f"{evidence(p_value, level)} that {given} look different (p = {p_value:.2g})"
    if p_value <= level:
        text += f", a {_size(size, 0.25)} effect ({size:.2g})"
        if len(shifted) == n_classes > 1:
            text += f"; it is in all {n_classes} classes"
        elif shifted:
            text += f"; it is in {len(shifted)} of {n_classes} classes: {listed(shifted)}"
        elif n_classes > 1:
            text += "; no single class stands out"
    return text


NO_CLASS = "no class occurs in both domains"
TOO_DIFFERENT = "the class frequencies differ too much to be evened out"


def headline(findings: Mapping[str, Finding]) -> str:
    """What was found, in one sentence."""
    found = [shift for shift in ("label", "conditional") if findings[shift].found]
    if findings["conditional"].found is None and (found or not findings["marginal"].found):
        start = "The class frequencies P(Y) differ between the domains" if found else "No shift was found"
        reason = findings["conditional"].words.removesuffix(" domains")
        return f"{start}; {reason}, so that P(X|Y) could not be compared."
    if len(found) == 2:
        return "Both the class frequencies P(Y) and the classes themselves, P(X|Y), differ between the domains."
    if found == ["label"]:
        return "The class frequencies P(Y) differ between the domains; within classes no difference was found."
    if found == ["conditional"]:
        rest = "" if findings["marginal"].found else ", although as a whole the features look alike"
        return f"The classes themselves, P(X|Y), differ between the domains{rest}."
    if findings["marginal"].found:
        return "The features P(X) differ between the domains; whether by class frequencies or within classes is open."
    return "No shift was found between the domains."


def advise(findings: Mapping[str, Finding], *, predicted: bool) -> tuple[Advice, ...]:
    """What to try, the first first."""
    label, marginal, conditional = (bool(findings[shift].found) for shift in ("label", "marginal", "conditional"))
    if findings["conditional"].words == NO_CLASS:
        why = "no class occurs in both, so that there is nothing to weight or to align by class"
        return (Advice("name the classes alike in both domains", why),)
    weighting = Advice(
        "weight the source by class",
        "with the ratio of class frequencies in the table, train or calibrate on source samples weighted by it; "
        "features need no alignment",
    )
    if label and conditional:
        return (
            Advice(
                "ckb+mmd", "aligns P(X|Y), and matches labels after weighting the source to the target's frequencies"
            ),
            Advice("ckw", "aligns means and covariances of each class; leaves class frequencies alone"),
            _not(
                "dan, dann, deep-coral", "matching P(X) as a whole forces the source's class frequencies on the target"
            ),
        )
    if label:
        return (
            weighting,
            _not("any alignment of P(X)", "it would undo a difference that is there for a good reason"),
        )
    if conditional:
        tips = [
            Advice("ckw", "aligns means and covariances of each class"),
            Advice("ckb", "aligns the conditional covariances, the method of the paper"),
        ]
        if not marginal:
            tips.append(_not("dan, dann, deep-coral", "they compare P(X), where there is nothing to see"))
        return tuple(tips)
    if marginal:
        return (
            Advice("more samples, or target labels", "the cause could not be told with these"),
            Advice("ckw", "the safe choice meanwhile: it aligns class by class"),
        )
    text = "a model trained on the source should hold in the target"
    if predicted:
        text += ", as far as predictions can tell"
    return (Advice("source", f"{text}; a shift too small for these samples cannot be excluded"),)


def _not(method: str, why: str) -> Advice:
    return Advice(method, why, avoid=True)
