"""Methods side by side on one task: the same network, data and schedule for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bures.arrays import check_flags
from bures.data import Domain
from bures.files import write_json
from bures.training import Recipe, Run, RunFolder, adapt

__all__ = ["Comparison", "Row", "compare"]


class Row(NamedTuple):
    """One line of a comparison; accuracy and gain are None where the target has no labels."""

    label: str
    accuracy: float | None
    gain: float | None
    score: float | None
    seconds: float | None


@dataclass(frozen=True)
class Comparison:
    """Finished runs of several methods on one task.

    Parameters
    ----------
    runs : dict of str to Run
        By the name of the method.
    """

    runs: dict[str, Run]

    @property
    def baseline(self) -> float | None:
        """The better accuracy of a source-only network with its own and with target BatchNorm statistics."""
        if "source" not in self.runs or self.runs["source"].accuracy is None:
            return None
        best: float = max(self.runs["source"].manifest["final"]["accuracy_by_batchnorm"].values())
        return best

    def rows(self) -> list[Row]:
        """A line for each method; a source-only network has a second one, with BatchNorm statistics of the target.

        Gains are over the better of these two.
        """
        rows = []
        for name, run in self.runs.items():
            final = run.manifest["final"]
            if name == "source":
                rows += self._source_rows(final)
                continue
            baseline, accuracy = self.baseline, run.accuracy
            gain = None if baseline is None or accuracy is None else accuracy - baseline
            label = f"{name} (upper bound)" if run.manifest["trains_on_target_labels"] else name
            rows.append(Row(label, accuracy, gain, final["score"], final["seconds"]))
        return rows

    @staticmethod
    def _source_rows(final: Mapping[str, Any]) -> list[Row]:
        by_policy = final["accuracy_by_batchnorm"]
        rows = [Row("source", by_policy["training"], None, final["score"], final["seconds"])]
        if "target" in by_policy:
            rows.append(Row("source+adabn", by_policy["target"], None, None, None))
        return rows


def compare(
    source: Domain,
    target: Domain,
    recipe: Recipe,
    methods: Iterable[str],
    output: str | Path,
    *,
    resume: bool = False,
    **options: Any,
) -> Comparison:
    """Train with several methods, each in a folder of its own below ``output``.

    Parameters
    ----------
    source, target : Domain
        As in `bures.training.adapt`.
    recipe : Recipe
        The same for all but for the method; options that a method does not have are left out.
    methods : iterable of str
        Names of methods.
    output : path
        Folder of the runs.
    resume : bool, optional
        Keep the runs that are finished and go on with those that are not.
    **options
        Of `bures.training.adapt`.

    Returns
    -------
    Comparison
        The finished runs.

    Examples
    --------
    >>> import tempfile
    >>> from bures.data import optdigits
    >>> from bures.experiments import compare
    >>> from bures.training import Recipe
    >>> digits = optdigits()
    >>> recipe = Recipe(network="lenet", epochs=8, batch_size=64, hidden=64, features=32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = compare(digits.take(range(400)), digits.take(range(400, 800)), recipe, ["source", "ckb"], folder)
    >>> [row.label for row in result.rows()]
    ['source', 'source+adabn', 'ckb']
    """
    check_flags(resume=resume)
    folder = Path(output)
    runs = {}
    for method in methods:
        place = folder / method
        begun = resume and RunFolder(place).exists()
        runs[method] = adapt(source, target, recipe.override({"method": method}), place, resume=begun, **options)
    comparison = Comparison(runs)
    write_json(folder / "comparison.json", {"rows": [row._asdict() for row in comparison.rows()]})
    return comparison
