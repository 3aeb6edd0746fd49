"""A campaign over targets: each draws a case, calls one public name and says what must hold."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import torch
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

SOURCE = str(Path(__file__).parents[2] / "src")


class Finding(AssertionError):  # noqa: N818 (it is the word of the report)
    """What must not happen has happened."""


class Refused(Exception):  # noqa: N818 (it is the good outcome of a bad case)
    """The library has refused a case as it should: the case is over."""


@dataclass(frozen=True)
class Target:
    """A function that draws a case and checks it, and the public names that it exercises."""

    name: str
    check: Callable[[Case], None]
    covers: tuple[str, ...]
    weight: float


TARGETS: dict[str, Target] = {}


def target(*covers: str, weight: float = 1.0) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Make a function a target; ``covers`` are names such as ``bures.metrics.ckb``, ``weight`` its share of cases."""

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        known = TARGETS.get(check.__name__)
        # pytest looks for doctests under another name of the module: the same target comes twice.
        if known is not None and known.check.__code__.co_filename != check.__code__.co_filename:
            raise ValueError(f"there are two targets named {check.__name__}")
        TARGETS[check.__name__] = Target(check.__name__, check, covers, weight)
        return check

    return add


class Case:
    """One case: what is drawn, what it was, and the judgement of calls."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**20)))
        self.said: dict[str, Any] = {}

    def one_of(self, *values: Any) -> Any:
        """One of some values."""
        return self.draw(st.sampled_from(values))

    def whole(self, low: int, high: int) -> int:
        """A whole number."""
        return int(self.draw(st.integers(low, high)))

    def say(self, **facts: Any) -> None:
        """Keep what a reader of a finding wants to know."""
        self.said.update(facts)

    def call(
        self, function: Callable[..., Any], *args: Any, names: Iterable[str], fault: object = None, **kw: Any
    ) -> Any:
        """Call; a refusal ends the case where it names an argument, and is a finding where nothing is wrong."""
        with quiet():
            try:
                return function(*args, **kw)
            except (ValueError, TypeError) as error:
                text = str(error)
                if not any(name in text for name in names):
                    raise Finding(f"the message names no argument: {type(error).__name__}: {text}") from error
                if fault is None:
                    raise Finding(f"refused although nothing is wrong: {type(error).__name__}: {text}") from error
                raise Refused from error

    def require(self, holds: object, message: str) -> None:
        """A property of the result."""
        if not holds:
            raise Finding(message)

    def finite(self, value: Any, what: str = "the value") -> Any:
        """The value, which has to be finite."""
        array = value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value, dtype=float))
        self.require(bool(torch.isfinite(array).all()), f"{what} is not finite: {value!r}")
        return value

    def close(self, a: Any, b: Any, tolerance: float, what: str) -> None:
        """Two numbers agree."""
        a, b = float(a), float(b)
        self.require(abs(a - b) <= tolerance, f"{what}: {a!r} and {b!r} differ by more than {tolerance:.3g}")


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings are allowed: what is looked for is wrong values and wrong errors."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def run_campaign(cases: int, seed: int, *, only: Iterable[str] | None = None, shrink: bool = True) -> dict[str, Any]:
    """Run about ``cases`` cases over all targets and tell what was found.

    Parameters
    ----------
    cases : int
        Divided among the targets by their weights, at least two for each.
    seed : int
        The cases follow from it.
    only : iterable of str, optional
        Names of targets.
    shrink : bool, optional
        Whether findings are made small, which takes time.
    """
    chosen = [TARGETS[name] for name in (TARGETS if only is None else only)]
    total = sum(one.weight for one in chosen)
    started = time.perf_counter()
    counts: dict[str, int] = {}
    failures: list[dict[str, Any]] = []
    refused = 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are small
    try:
        for one in chosen:
            share = max(2, round(cases * one.weight / total))
            counts[one.name], some, found = _run_target(one, share, seed, shrink)
            refused += some
            failures += found
    finally:
        torch.set_num_threads(threads)
    return {
        "cases": sum(counts.values()),
        "refused": refused,
        "targets": len(chosen),
        "cases_of_targets": counts,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 2),
        "failures": failures,
    }


def _run_target(one: Target, cases: int, seed: int, shrink: bool) -> tuple[int, int, list[dict[str, Any]]]:
    count = refused = 0
    last: dict[str, Any] = {}

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        phases=[Phase.generate, *([Phase.shrink] if shrink else [])],
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(st.data())
    def check(data: Any) -> None:
        nonlocal count, refused
        count += 1
        case = Case(data.draw)
        last["said"] = case.said
        try:
            with quiet():
                one.check(case)
        except Refused:
            refused += 1

    try:
        check()
    except Exception as error:
        return count, refused, [_describe(one, error, last.get("said", {}))]
    return count, refused, []


def _describe(one: Target, error: Exception, said: dict[str, Any]) -> dict[str, Any]:
    """A finding as plain values: what happened, where in the library, and in which case."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(SOURCE)]
    where = f"{Path(frames[-1].filename).relative_to(SOURCE)}:{frames[-1].lineno}" if frames else ""
    return {
        "target": one.name,
        "error": type(error).__name__,
        "message": str(error)[:600],
        "where": where,
        "case": {name: repr(value)[:400] for name, value in said.items()},
    }
