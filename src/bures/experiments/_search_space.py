"""What a search may change: fields of a recipe with their ranges or choices, as a small YAML file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bures.files import read_text, read_yaml
from bures.methods import method_options
from bures.training import Recipe
from bures.training._recipe_values import as_number

__all__ = ["SearchSpace", "load_space"]

# These decide how models are judged: changing them would compare scores that do not compare.
JUDGING = ("select", "validators", "source_holdout")
FORMS = "{low: NUMBER, high: NUMBER, log: true, step: NUMBER} or {choices: [VALUE, VALUE]}"


@dataclass(frozen=True)
class _Range:
    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def suggest(self, trial: Any, name: str) -> Any:
        if self.whole:
            return trial.suggest_int(name, self.low, self.high, log=self.log, step=self.step or 1)
        return trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)


@dataclass(frozen=True)
class _Choices:
    values: tuple[Any, ...]

    def ends(self) -> tuple[Any, ...]:
        return self.values

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, self.values)


class SearchSpace:
    """Fields of a recipe that a search may change.

    Parameters
    ----------
    dimensions : mapping of str to mapping
        For each field of `bures.training.Recipe`, or ``options.NAME`` of a method, either ``low`` and ``high``, with
        ``log: true`` for a search in orders of magnitude or a ``step``, or ``choices``.
    recipe : Recipe
        What the fields are changed in; each end and each choice must be possible in it.

    Examples
    --------
    >>> from bures.experiments import SearchSpace
    >>> from bures.training import Recipe
    >>> space = SearchSpace(
    ...     {"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "batch_size": {"choices": [32, 64]}}, Recipe()
    ... )
    >>> space
    SearchSpace(lr 0.0001 to 0.01 (log), batch_size in 32, 64)
    >>> space.apply(Recipe(), {"lr": 0.003, "batch_size": 32}).lr
    0.003
    """

    def __init__(self, dimensions: Mapping[str, Any], recipe: Recipe) -> None:
        if not isinstance(dimensions, Mapping) or not dimensions:
            raise ValueError(f"a search space is a mapping of fields to {FORMS}, at least one; got {dimensions!r}")
        self.dimensions = {str(name): _read(str(name), value, recipe) for name, value in dimensions.items()}
        for name, dimension in self.dimensions.items():
            for value in dimension.ends():
                try:
                    self.apply(recipe, {name: value})
                except ValueError as error:
                    raise ValueError(f"search space: {name}={value!r} is not possible: {error}") from error
        self._check_options(recipe)

    def _check_options(self, recipe: Recipe) -> None:
        """Raise for an option that no method of the search has: its value would change nothing."""
        chosen = self.dimensions.get("method")
        methods = [str(value) for value in chosen.values] if isinstance(chosen, _Choices) else [recipe.method]
        known = dict.fromkeys(option for method in methods for option in method_options(method))
        for name in self.dimensions:
            prefix, _, option = name.partition(".")
            if prefix == "options" and option not in known:
                raise ValueError(
                    f"search space: method {', '.join(map(repr, methods))} has no option {option!r}; accepted are: "
                    f"{', '.join(known) or 'none'}"
                )

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Values of all fields, as an Optuna trial suggests them."""
        return {name: dimension.suggest(trial, name) for name, dimension in self.dimensions.items()}

    def apply(self, recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
        """The recipe with these values. Options that only other methods have are kept and not used."""
        options = {name.partition(".")[2]: value for name, value in values.items() if name.startswith("options.")}
        plain = {name: value for name, value in values.items() if not name.startswith("options.")}
        return recipe.override({**plain, "options": {**recipe.options, **options}})

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            name: {"choices": list(part.values)}
            if isinstance(part, _Choices)
            else {"low": part.low, "high": part.high, "log": part.log, "step": part.step}
            for name, part in self.dimensions.items()
        }

    def __repr__(self) -> str:
        parts = []
        for name, part in self.dimensions.items():
            if isinstance(part, _Choices):
                parts.append(f"{name} in {', '.join(map(str, part.values))}")
            else:
                parts.append(f"{name} {part.low} to {part.high}{' (log)' if part.log else ''}")
        return f"SearchSpace({', '.join(parts)})"


def load_space(path: str | Path, recipe: Recipe) -> SearchSpace:
    """Read a search space from a YAML file.

    Parameters
    ----------
    path : path
        The file.
    recipe : Recipe
        As in `SearchSpace`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from bures.experiments import load_space
    >>> from bures.training import Recipe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "space.yaml")
    ...     _ = file.write_text("options.weight: {low: 0.1, high: 10, log: true}")
    ...     load_space(file, Recipe())
    SearchSpace(options.weight 0.1 to 10.0 (log))
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"search space {str(path)!r} is not a file; write fields with {FORMS} into it")
    content = read_yaml(read_text(path, path), path)
    try:
        return SearchSpace(content, recipe)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read(name: str, value: Any, recipe: Recipe) -> _Range | _Choices:
    if name in JUDGING:
        raise ValueError(f"search space: {name} decides how models are judged, so it cannot be searched; remove it")
    if not isinstance(value, Mapping):
        raise ValueError(f"search space: {name} is {value!r}; accepted is {FORMS}")
    if set(value) == {"choices"}:
        choices = value["choices"]
        if not isinstance(choices, (list, tuple)) or not choices:
            raise ValueError(f"search space: {name} has the choices {choices!r}; accepted is a list of values")
        values = tuple(as_number(choice) for choice in choices)
        if not all(choice is None or isinstance(choice, (bool, int, float, str)) for choice in values):
            raise ValueError(f"search space: {name} has the choices {choices!r}; accepted are numbers, names and null")
        return _Choices(values)
    if not {"low", "high"} <= set(value) <= {"low", "high", "log", "step"}:
        raise ValueError(f"search space: {name} has {', '.join(map(str, value)) or 'nothing'}; accepted is {FORMS}")
    return _read_range(name, value, recipe)


def _read_range(name: str, value: Mapping[str, Any], recipe: Recipe) -> _Range:
    numbers = {key: as_number(value[key]) for key in ("low", "high", "step") if value.get(key) is not None}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise ValueError(f"search space: {key}={number!r} of {name} is no number; accepted is {FORMS}")
    if absent := [key for key in ("low", "high") if key not in numbers]:
        raise ValueError(f"search space: {absent[0]} of {name} is nothing; accepted is {FORMS}")
    low, high, step, log = numbers["low"], numbers["high"], numbers.get("step"), value.get("log", False)
    if not isinstance(log, bool):
        raise ValueError(f"search space: log={log!r} of {name} is no truth value; accepted is true or false")
    if low > high or (log and low <= 0) or (step is not None and step <= 0):
        raise ValueError(
            f"search space: {name} goes from {low} to {high}{', log' if log else ''}; low must not be above high, and "
            "low of a logarithmic range and a step must be positive"
        )
    if log and step is not None:
        raise ValueError(f"search space: {name} has both log and step; accepted is one of them")
    if _is_whole(name, recipe) and all(isinstance(number, int) for number in numbers.values()):
        return _Range(low, high, log, step, whole=True)
    return _Range(float(low), float(high), log, None if step is None else float(step))


def _is_whole(name: str, recipe: Recipe) -> bool:
    """Whether a field takes whole numbers."""
    if name.startswith("options."):
        default = method_options(recipe.method).get(name.partition(".")[2])
        return isinstance(default, int) and not isinstance(default, bool)
    return any(item.name == name and str(item.type).startswith("int") for item in fields(Recipe)) or name == "epoch"
