"""A search for the fields of a recipe with Optuna: trials are runs, the objective a score without target labels."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bures.arrays import check_choice, check_count, check_flags, check_seed
from bures.data import Domain
from bures.experiments._search_space import SearchSpace
from bures.files import write_json, write_text
from bures.locks import Holder
from bures.training import Recipe, RunFolder, StoppedBySignal, StopTraining, adapt, checksum
from bures.training._checkpoint import compare
from bures.training._csv import table_csv
from bures.training._plan import derive_seed
from bures.training._setting import fingerprint_of

__all__ = ["TrialResult", "Tuning", "import_optuna", "tune"]

AT = ("last", "best")
HOPELESS = 5  # failures without a success after which a search ends
STATES = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "waiting"}


class TrialResult(NamedTuple):
    """One trial of a search.

    Attributes
    ----------
    number : int
        Counted from 0.
    state : {"finished", "pruned", "failed", "running", "waiting", "interrupted"}
    score : float or None
        The objective; None of a trial that is not finished.
    values : dict
        What was tried, by the name of the field.
    reason : str or None
        Why it failed or was pruned.
    folder : Path
        The run.
    accuracy : float or None
        On the target where it has labels; the search has not seen it.
    """

    number: int
    state: str
    score: float | None
    values: dict[str, Any]
    reason: str | None
    folder: Path
    accuracy: float | None


@dataclass(frozen=True)
class Tuning:
    """What came of a search.

    Parameters
    ----------
    path : Path
        Its folder.
    validator : str
        Whose score was the objective.
    trials : list of TrialResult
        The best score first; those that have none come last.
    recipe : Recipe
        That of the best trial.
    """

    path: Path
    validator: str
    trials: list[TrialResult]
    recipe: Recipe

    @property
    def best(self) -> TrialResult:
        """The finished trial with the best score."""
        return self.trials[0]


def tune(
    source: Domain,
    target: Domain,
    recipe: Recipe,
    space: SearchSpace | Mapping[str, Any],
    output: str | Path,
    *,
    n_trials: int = 20,
    at: str = "last",
    prune: bool = False,
    storage: str | None = None,
    study_name: str = "bures",
    seed: int = 0,
    on_trial: Callable[[TrialResult], None] | None = None,
    **options: Any,
) -> Tuning:
    """Search for the fields of a recipe that give the best score of its validator; target labels play no part.

    Each trial is a run folder below ``output/trials``. A trial that fails is noted and the search goes on. Called again
    with the same arguments, the search goes on where it was: an interrupted run is resumed.

    Parameters
    ----------
    source, target : Domain
        As in `bures.training.adapt`.
    recipe : Recipe
        What is not searched. Its ``select`` names the validator whose score is the objective.
    space : SearchSpace or mapping
        What is searched.
    output : path
        Folder of the search.
    n_trials : int, optional
        Trials in all, over all calls and machines.
    at : {"last", "best"}, optional
        The score after the last epoch, or that of the run's best epoch.
    prune : bool, optional
        Stop runs whose score is below the median of earlier trials at the same epoch.
    storage : str, optional
        URL of a database that Optuna takes; several machines that name the same one share the trials. None is an
        SQLite file in ``output``.
    study_name : str, optional
        Name of the search in the database.
    seed : int, optional
        Of the search; that of the runs is the recipe's.
    on_trial : callable, optional
        Called with each trial when it has ended.
    **options
        Of `bures.training.adapt`.

    Returns
    -------
    Tuning
        Trials and the chosen recipe. The same is written to ``trials.csv``, ``best-recipe.yaml`` and ``tuning.json``.

    Raises
    ------
    ImportError
        Optuna is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from bures.data import optdigits
    >>> from bures.experiments import tune
    >>> from bures.training import Recipe
    >>> digits = optdigits()
    >>> source, target = digits.take(range(200)), digits.take(range(200, 400))
    >>> recipe = Recipe(network="lenet", epochs=1, batch_size=50, hidden=32, features=16)
    >>> space = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = tune(source, target, recipe, space, folder, n_trials=2)
    >>> len(result.trials), result.best.score == max(trial.score for trial in result.trials)
    (2, True)
    """
    check_flags(prune=prune)
    optuna = import_optuna()
    check_choice("at", at, AT)
    n_trials = check_count("n_trials", n_trials)
    check_seed(seed)
    space = space if isinstance(space, SearchSpace) else SearchSpace(space, recipe)
    folder = Path(output)
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    search = _Search(optuna, folder, recipe, space, at, prune, seed)
    url = storage or f"sqlite:///{(folder / 'study.db').absolute()}"
    with _quiet(optuna), _connected(optuna, url) as database:
        search.open(database, study_name, source, target)
        failures, successes = 0, search.count("COMPLETE")
        while search.spent() < n_trials:
            result = search.run_trial(source, target, options)
            failures, successes = failures + (result.state == "failed"), successes + (result.state == "finished")
            if on_trial is not None:
                on_trial(result)
            if failures >= HOPELESS and not successes:
                raise ValueError(f"the first {failures} trials failed, the last with: {result.reason}")
        return search.finish()


class _Search:
    """An Optuna study whose trials are run folders."""

    def __init__(
        self, optuna: Any, folder: Path, recipe: Recipe, space: SearchSpace, at: str, prune: bool, seed: int
    ) -> None:
        self.optuna, self.folder, self.recipe, self.space = optuna, folder, recipe, space
        self.at, self.prune, self.seed = at, prune, seed
        self.study: Any = None

    def open(self, database: Any, name: str, source: Domain, target: Domain) -> None:
        """Begin the study, or go on with it; an error where it is one of other data, recipe or space."""
        warmup = max(self.recipe.epochs // 4, 1)
        pruner = self.optuna.pruners.MedianPruner(n_warmup_steps=warmup) if self.prune else None
        self.study = self.optuna.create_study(
            storage=database,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruner or self.optuna.pruners.NopPruner(),
        )
        masked = target if target.labels is None else target.hide_labels()[0]
        settings = fingerprint_of(self.recipe.to_dict(), {"source": checksum(source), "target": checksum(masked)})
        settings |= {f"space.{field}": value for field, value in self.space.to_dict().items()} | {"at": self.at}
        settings = json.loads(json.dumps(settings))
        found = self.study.user_attrs.get("settings")
        if found is None:
            self.study.set_user_attr("settings", settings)
        else:
            compare(self.folder, found, settings)
        self._take_up()

    def _take_up(self) -> None:
        """Queue the trials that ended with their process, so that their runs are resumed."""
        states = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=[states.RUNNING]):
            if _lost_its_process(trial):
                self.study.tell(trial.number, state=states.FAIL)
        trials = self.study.get_trials(deepcopy=False)
        resumed = {trial.user_attrs.get("resumes") for trial in trials}
        for trial in trials:
            if _interrupted(trial) and trial.number not in resumed:
                self.study.enqueue_trial(trial.params, user_attrs={"resumes": trial.number, "folder": _folder(trial)})

    def count(self, *states: str) -> int:
        """Number of trials in these states."""
        return sum(trial.state.name in states for trial in self.study.get_trials(deepcopy=False))

    def spent(self) -> int:
        """Trials that count: ended by themselves, or running elsewhere."""
        trials = self.study.get_trials(deepcopy=False)
        return sum(trial.state.name != "WAITING" and not _interrupted(trial) for trial in trials)

    def run_trial(self, source: Domain, target: Domain, options: Mapping[str, Any]) -> TrialResult:
        """Ask for values, train with them and tell the score."""
        states = self.optuna.trial.TrialState
        # A sampler of its own for each trial: a search that was interrupted goes on as it would have.
        seed = derive_seed(self.seed, "trial", self.spent()) % 2**32
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        trial = self.study.ask()
        name = _folder(trial)
        attributes = {"folder": name, "host": platform.node(), "process": os.getpid()}
        for key, value in attributes.items():
            trial.set_user_attr(key, value)
        try:
            score = self._score(trial, self.folder / "trials" / name, source, target, options)
        except (StoppedBySignal, KeyboardInterrupt):
            self.study.tell(trial, state=states.FAIL)  # without a reason: the run is resumed another time
            raise
        except StopTraining as stop:
            trial.set_user_attr("reason", str(stop))
            self.study.tell(trial, state=states.PRUNED)
        except Exception as error:  # whatever it is, the other trials go on
            trial.set_user_attr("reason", f"{type(error).__name__}: {' '.join(str(error).split())}"[:500])
            self.study.tell(trial, state=states.FAIL)
        else:
            self.study.tell(trial, score)
        return self._result(self.study.get_trials(deepcopy=False)[trial.number])

    def _score(self, trial: Any, place: Path, source: Domain, target: Domain, options: Mapping[str, Any]) -> float:
        recipe = self.space.apply(self.recipe, self.space.suggest(trial))
        begun = RunFolder(place).exists()
        if not begun:
            shutil.rmtree(place, ignore_errors=True)  # what a killed process has left before there was a run

        def report(row: Mapping[str, Any]) -> None:
            if not math.isfinite(row["target_score"]):
                return
            trial.report(row["target_score"], row["epoch"])
            if trial.should_prune():
                raise StopTraining(f"below the median of earlier trials in epoch {row['epoch']}")

        watched = report if self.prune else None
        final = adapt(source, target, recipe, place, resume=begun, on_epoch=watched, **options).manifest["final"]
        score = final["score"] if self.at == "last" else final["best"]["score"]
        if score is None or not math.isfinite(score):
            raise ValueError(f"validator {recipe.select!r} gives no score to this model: its features do not vary")
        return float(score)

    def _result(self, trial: Any) -> TrialResult:
        folder, accuracy = self.folder / "trials" / _folder(trial), None
        with suppress(OSError, ValueError):  # a trial of another machine
            accuracy = (RunFolder(folder).read_manifest().get("final") or {}).get("accuracy")
        state = "interrupted" if _interrupted(trial) else STATES[trial.state.name]
        score = trial.value if state == "finished" else None
        return TrialResult(
            trial.number, state, score, dict(trial.params), trial.user_attrs.get("reason"), folder, accuracy
        )

    def finish(self) -> Tuning:
        """Write the table and the recipe of the best trial."""
        results = [self._result(trial) for trial in self.study.get_trials(deepcopy=False)]
        results = [result for result in results if result.state not in ("interrupted", "waiting")]
        results.sort(key=lambda result: (result.score is None, -(result.score or 0.0), result.number))
        if not results or results[0].score is None:
            reasons = "; ".join(dict.fromkeys(result.reason for result in results if result.reason))
            raise ValueError(f"no trial of the search in {self.folder} is finished: {reasons or 'they are running'}")
        best = results[0]
        recipe = self.space.apply(self.recipe, best.values)
        write_text(self.folder / "trials.csv", _table(results, list(self.space.dimensions)))
        recipe.save(self.folder / "best-recipe.yaml")
        summary = {
            "validator": self.recipe.select,
            "at": self.at,
            "study": self.study.study_name,
            "space": self.space.to_dict(),
            "best": best._asdict() | {"folder": f"trials/{best.folder.name}"},
            "trials": len(results),
        }
        write_json(self.folder / "tuning.json", summary)
        return Tuning(self.folder, self.recipe.select, results, recipe)


def _table(results: list[TrialResult], names: list[str]) -> str:
    columns = ["trial", "state", "score", *names, "target accuracy (not used)", "reason"]
    rows = (
        [item.number, item.state, item.score, *(item.values.get(name) for name in names), item.accuracy, item.reason]
        for item in results
    )
    return table_csv(columns, (["" if cell is None else cell for cell in row] for row in rows))


def _folder(trial: Any) -> str:
    """Name of a trial's folder: its number, or that of the one it resumes. A database is not trusted with paths."""
    name = str(trial.user_attrs.get("folder", ""))
    return name if re.fullmatch(r"[0-9]{4,9}", name) else f"{trial.number:04d}"


def _interrupted(trial: Any) -> bool:
    """Whether a trial ended with its process: one that failed by itself has a reason."""
    return trial.state.name == "FAIL" and "reason" not in trial.user_attrs


def _lost_its_process(trial: Any) -> bool:
    """Whether the process of a running trial is gone, as far as this machine can see."""
    process, host = trial.user_attrs.get("process"), trial.user_attrs.get("host")
    if host == platform.node() and process in (None, os.getpid()):  # this process has just begun to look
        return True
    return not Holder(process, host).may_live()


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError("a search needs Optuna, which is not installed: pip install 'bures[tune]'") from error
    return optuna


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Keep Optuna's announcements from the user."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


@contextmanager
def _connected(optuna: Any, url: str) -> Iterator[Any]:
    """The database of a study, whose connections are closed in the end: Optuna keeps them as long as it lives."""
    database = optuna.storages.RDBStorage(url)
    try:
        yield database
    finally:
        database.remove_session()
        database.engine.dispose()
