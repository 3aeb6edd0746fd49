"""Grids: which tasks, methods, seeds and recipes a table is made of, in the order of their importance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import Any

from bures.experiments._cell import Cell
from bures.experiments._shallow import SHALLOW, SHALLOW_RECIPE, ShallowCell
from bures.files import read_text, read_yaml
from bures.methods import method_info, method_names
from bures.training import load_recipe
from bures.training._recipe_files import is_recipe_file
from bures.wording import reason_of

__all__ = ["ADABN", "OTHERS", "Grid", "Stage", "grid_names", "load_grid"]

OTHERS = "others"  # in a list of methods: all that no earlier place names
ADABN = "source+adabn"  # a row of the cell `source`, which is evaluated with both kinds of statistics
FIELDS = {"title", "domains", "tasks", "stages", "paper", "about", "not_here", "not_run", "short"}
STAGE_FIELDS = {"recipe", "methods", "seeds", "changes", "tasks"}


@dataclass(frozen=True)
class Stage:
    """Part of a grid: methods that are run with one recipe and the same seeds; without a recipe, shallow ones.

    Parameters
    ----------
    recipe : str or None
        Name or YAML file of a recipe; None for the shallow methods, which have none.
    methods : tuple of str
        Names of methods, most important first.
    seeds : tuple of int
        Each method is run with each of them.
    changes : mapping
        Fields of the recipe that this stage changes.
    tasks : tuple of str
        ``"source:target"`` by names of the grid's domains.
    """

    recipe: str | None
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    changes: Mapping[str, Any]
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A declared grid of cells.

    Parameters
    ----------
    name : str
        What it is called on the command line; its ledger is ``name.jsonl``.
    title : str
        Heading of its table.
    domains : mapping
        From the names of the domains to what `bures.data.load_domain` takes.
    tasks : sequence of str
        Pairs such as ``"amazon:dslr"``, from source to target.
    stages : sequence of Stage
        What is run, most important first.
    paper : str, optional
        Which of the paper's tables stands beside it.
    about : str
        What a reader of the table must know.
    not_here : str, optional
        Why the grid has not been run by the authors of this library.
    not_run : sequence of pairs
        Recipes and methods of rows that belong into the table and could not be run, in words.
    spec : str
        What the command line takes for this grid.
    short : mapping
        Short names of domains, for the heads of columns.

    Examples
    --------
    >>> from bures.experiments import load_grid
    >>> grid = load_grid("digits")
    >>> grid.tasks
    ('usps:mnist', 'mnist:usps')
    >>> [cell.key for cell in grid.cells(methods=["ckb"], tasks=["usps:mnist"], seeds=[3], recipes=["digits"])]
    ['usps|mnist|digits|ckb|3']
    """

    name: str
    title: str
    domains: Mapping[str, str]
    tasks: tuple[str, ...]
    stages: tuple[Stage, ...]
    paper: str | None = None
    about: str = ""
    not_here: str | None = None
    not_run: tuple[tuple[str, str], ...] = ()
    spec: str = ""
    short: Mapping[str, str] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """The methods of all stages, each once."""
        return list(dict.fromkeys(method for stage in self.stages for method in stage.methods))

    @property
    def seeds(self) -> list[int]:
        """The seeds of all stages."""
        return sorted({seed for stage in self.stages for seed in stage.seeds})

    @property
    def recipes(self) -> list[str]:
        """The recipes of all stages, each once; ``shallow`` stands for methods that have none."""
        return list(dict.fromkeys(stage.recipe or SHALLOW_RECIPE for stage in self.stages))

    def task_key(self, task: str) -> str:
        """A task as results name it, ``source->target`` by what is loaded."""
        return "->".join(self.domains[side] for side in task.split(":"))

    def cells(
        self,
        *,
        methods: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        recipes: Sequence[str] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> list[Cell | ShallowCell]:
        """The cells, most important first: stage by stage, and in each a whole table before the next seed.

        Parameters
        ----------
        methods, tasks, seeds, recipes : sequence, optional
            Only these.
        changes : mapping, optional
            Fields of the recipes that differ; cells with changes are others than those without.
        """
        methods = _chosen("methods", [("source" if name == ADABN else name) for name in methods or ()], self.methods)
        tasks = _chosen("tasks", tasks, self.tasks)
        seeds, recipes = _chosen("seeds", seeds, self.seeds), _chosen("recipes", recipes, self.recipes)
        cells: dict[str, Cell | ShallowCell] = {}
        for stage in self.stages:
            if (stage.recipe or SHALLOW_RECIPE) not in recipes:
                continue
            for seed in (seed for seed in stage.seeds if seed in seeds):
                for method in (method for method in stage.methods if method in methods):
                    for task in (task for task in stage.tasks if task in tasks):
                        cell = self._cell(stage, method, task, seed, changes or {})
                        cells.setdefault(cell.key, cell)
        return list(cells.values())

    def _cell(self, stage: Stage, method: str, task: str, seed: int, changes: Mapping[str, Any]) -> Cell | ShallowCell:
        source, target = (self.domains[side] for side in task.split(":"))
        if stage.recipe is None:
            return ShallowCell(source, target, method, seed, self.spec or self.name, task)
        return Cell(source, target, stage.recipe, method, seed, {**stage.changes, **changes})


def grid_names() -> list[str]:
    """Names of the grids that come with the library.

    Examples
    --------
    >>> from bures.experiments import grid_names
    >>> {"digits", "office10", "imageclef", "office-home"} <= set(grid_names())
    True
    """
    return sorted(item.name.removesuffix(".yaml") for item in _folder().iterdir() if item.name.endswith(".yaml"))


def load_grid(name: str | Path) -> Grid:
    """Read a grid by its name or from a YAML file.

    Parameters
    ----------
    name : str or path
        One of `grid_names`, or a file that ends in ``.yaml`` or ``.yml``. Files of recipes that it names are looked for
        in the working folder, then beside it.

    Examples
    --------
    >>> from bures.experiments import load_grid
    >>> len(load_grid("office10").tasks)
    12
    """
    text = str(name)
    if text in grid_names():
        content, label = (_folder() / f"{text}.yaml").read_text(encoding="utf-8"), text
    elif text.endswith((".yaml", ".yml")):
        path = Path(text)
        if not path.is_file():
            raise FileNotFoundError(f"grid={text!r} is not a file")
        content, label = read_text(path, f"grid {path}"), path.stem
    else:
        raise ValueError(f"grid={text!r} is unknown; accepted are {', '.join(grid_names())} and files in .yaml")
    try:
        return replace(_parse(label, read_yaml(content, "it"), Path(text).parent), spec=text)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"grid {text} cannot be used: {reason_of(error)}") from error


def _folder() -> Any:
    return files("bures.experiments") / "grids"


def _parse(name: str, content: Any, folder: Path) -> Grid:
    _check_fields("a grid", content, FIELDS, {"title", "domains", "stages"})
    domains = {str(key): str(value) for key, value in content["domains"].items()}
    tasks = tuple(content.get("tasks") or (f"{source}:{target}" for source, target in permutations(domains, 2)))
    for task in tasks:
        _check_task(task, domains)
    stages: list[Stage] = []
    if not isinstance(content["stages"], list):
        raise ValueError(f"stages is a {type(content['stages']).__name__}; accepted is a list of stages")
    for entry in content["stages"]:
        _check_fields("a stage", entry, STAGE_FIELDS, {"methods", "seeds"})
        recipe = entry.get("recipe")
        if recipe is not None:
            recipe = _from_here(str(recipe), folder)
            load_recipe(recipe)
        own_tasks = tuple(entry.get("tasks") or tasks)
        for task in own_tasks:
            _chosen("tasks", [task], tasks)
        methods = _expand(entry["methods"], recipe, stages)
        seeds = tuple(int(seed) for seed in entry["seeds"])
        stages.append(Stage(recipe, methods, seeds, dict(entry.get("changes") or {}), own_tasks))
    texts = {key: content.get(key) for key in ("paper", "not_here")}
    rows = tuple((str(recipe), str(method)) for recipe, method in content.get("not_run") or ())
    about = content.get("about", "").strip()
    short = {str(key): str(value) for key, value in (content.get("short") or {}).items()}
    return Grid(name, content["title"], domains, tasks, tuple(stages), about=about, not_run=rows, short=short, **texts)


def _from_here(recipe: str, folder: Path) -> str:
    """A recipe as the working folder sees it: its name, its file, or else the file of that name beside the grid."""
    beside = folder / recipe
    return str(beside) if is_recipe_file(recipe) and not Path(recipe).is_file() and beside.is_file() else recipe


def _check_fields(what: str, content: Any, known: set[str], needed: set[str]) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"{what} is a {type(content).__name__}; accepted are fields with their values")
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{what} has no field {unknown[0]!r}; accepted are {', '.join(sorted(known))}")
    if missing := sorted(needed - set(content)):
        raise ValueError(f"{what} lacks the field {missing[0]!r}")


def _check_task(task: Any, domains: Mapping[str, str]) -> None:
    sides = str(task).split(":")
    if len(sides) != 2 or any(side not in domains for side in sides):
        raise ValueError(f"task {task!r} is no pair SOURCE:TARGET of the domains {', '.join(domains)}")


def _expand(names: Iterable[str], recipe: str | None, earlier: Sequence[Stage]) -> tuple[str, ...]:
    """The methods of a stage, with ``others`` replaced by those that no earlier stage of the kind names."""
    # A method without a paper is none of the library's own: tests register such.
    known = list(SHALLOW) if recipe is None else [name for name in method_names() if method_info(name).paper]
    named = list(names)
    taken = {method for stage in earlier if (stage.recipe is None) == (recipe is None) for method in stage.methods}
    if recipe is not None:
        taken.add(ADABN)
    expanded: list[str] = []
    for name in named:
        if name == OTHERS:
            # Not all can be used with any samples; those that cannot are named where they belong.
            usable = known if recipe is None else [method for method in known if method_info(method).samples == "any"]
            expanded += [method for method in usable if method not in taken and method not in named]
        elif name == ADABN and recipe is not None:
            raise ValueError(f"{ADABN!r} is a row of the cells of 'source'; name that")
        elif name not in (SHALLOW if recipe is None else method_names()):
            raise ValueError(f"method {name!r} is unknown; accepted are {', '.join(known)}")
        else:
            expanded.append(name)
    return tuple(expanded)


def _chosen(what: str, given: Sequence[Any] | None, known: Sequence[Any]) -> list[Any]:
    """The given entries, or all where none are given."""
    if not given:
        return list(known)
    if unknown := [entry for entry in given if entry not in known]:
        raise ValueError(f"{what}: {unknown[0]!r} is not in the grid; accepted are {', '.join(map(str, known))}")
    return list(given)
