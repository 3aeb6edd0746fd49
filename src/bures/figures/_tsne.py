"""Features of two models in the plane: by domain and by class, with what the eye sees put into numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import silhouette_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bures.arrays import check_flags, check_seed
from bures.data import Domain, load_domain
from bures.data._registry import has_test_part
from bures.experiments._feature_figure import name_class, some_of_each, tsne_plane
from bures.experiments._fonts import fonts_for
from bures.figures._ledgers import run_manifest
from bures.figures._style import Style, style_named
from bures.metrics import ckb, ckw
from bures.training import Recipe, SavedModel, load_model
from bures.training._prediction import can_adapt_batchnorm, with_target_statistics

__all__ = ["FeatureState", "a_distance", "feature_state", "run_feature_state", "tsne_figure"]

Floats = NDArray[np.float64]
TOGETHER = 12  # classes up to which each has its name in the picture


@dataclass(frozen=True)
class FeatureState:
    """Features of both domains under one model, their map and their distances.

    Attributes
    ----------
    title : str
        What the model is.
    names : tuple of str
        The source's name and the target's.
    plane_s, plane_t : array (n, 2), (m, 2)
        The map.
    y_s, y_t : array of int
        Classes.
    classes : tuple of str
        Their names.
    a_distance, silhouette, ckb, ckw : float
        Of the features themselves, not of the map: how well a linear classifier tells the domains apart, how well
        the classes of both domains stand apart, and the squared distances of the class-conditional distributions.
    known : bool
        Whether the target's classes are true ones; else they are the model's predictions.
    """

    title: str
    names: tuple[str, str]
    plane_s: Floats
    plane_t: Floats
    y_s: NDArray[np.int64]
    y_t: NDArray[np.int64]
    classes: tuple[str, ...]
    a_distance: float
    silhouette: float
    ckb: float
    ckw: float
    known: bool


def a_distance(zs: Floats, zt: Floats, *, seed: int = 0) -> float:
    r"""Proxy A-distance :math:`2 (1 - 2 e)`: e is the balanced error of a linear classifier of the domain, out of fold.

    Parameters
    ----------
    zs, zt : array (n, d), (m, d)
        Features of the domains, at least five each.
    seed : int, optional
        Of the folds.

    Returns
    -------
    float
        2 where the domains can be told apart without an error; 0, or a little below by chance, where they cannot.

    Examples
    --------
    >>> import numpy as np
    >>> from bures.figures import a_distance
    >>> rng = np.random.default_rng(0)
    >>> zs = rng.normal(size=(100, 3))
    >>> a_distance(zs, zs + 20), abs(a_distance(zs, rng.normal(size=(80, 3)))) < 0.5
    (2.0, True)
    """
    if min(len(zs), len(zt)) < 5:
        raise ValueError(f"zs and zt have {len(zs)} and {len(zt)} samples; accepted are at least five of each")
    z, domain = np.concatenate([zs, zt]), np.repeat([0, 1], [len(zs), len(zt)])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000))
    folds = StratifiedKFold(5, shuffle=True, random_state=check_seed(seed) % 2**32)
    wrong = cross_val_predict(classifier, z, domain, cv=folds) != domain
    error = (wrong[domain == 0].mean() + wrong[domain == 1].mean()) / 2
    return float(2 * (1 - 2 * error))


def feature_state(
    model: SavedModel,
    source: Domain,
    target: Domain,
    *,
    title: str,
    own_statistics: bool = True,
    n: int = 500,
    seed: int = 0,
) -> FeatureState:
    """Features of a sample of both domains, mapped to the plane by t-SNE and measured.

    Parameters
    ----------
    model : SavedModel
        The network.
    source : Domain
        With labels.
    target : Domain
        Where it has no labels, the model's predictions stand in.
    title : str
        What the model is.
    own_statistics : bool, optional
        Normalise the source by its own BatchNorm statistics, as in training with separate batches; a saved network
        has those it was evaluated with.
    n : int, optional
        Samples of each domain at most.
    seed : int, optional
        Of the samples and of t-SNE.
    """
    check_flags(own_statistics=own_statistics)
    chosen_s, chosen_t = some_of_each(source, target, n, seed)
    if chosen_s.labels is None:
        raise ValueError(f"the source {source.name!r} has no labels; accepted is a labelled domain")
    predicted = model.predict(chosen_t)
    if own_statistics and can_adapt_batchnorm(model.network):
        fitted = model.fit(source).samples
        model = replace(model, network=with_target_statistics(model.network, fitted, model.inputs))
    zs, zt = (part.features.double().numpy() for part in (model.predict(chosen_s), predicted))
    known = chosen_t.labels is not None
    y_s = np.asarray(chosen_s.labels, dtype=np.int64)
    y_t = np.asarray(chosen_t.labels if known else predicted.probabilities.argmax(dim=1), dtype=np.int64)
    z, y = np.concatenate([zs, zt]), np.concatenate([y_s, y_t])
    plane = tsne_plane(z, seed)
    return FeatureState(
        title,
        (source.name, target.name),
        plane[: len(zs)],
        plane[len(zs) :],
        y_s,
        y_t,
        tuple(source.class_names),
        a_distance(zs, zt, seed=seed),
        float(silhouette_score(z, y)) if len(np.unique(y)) > 1 else np.nan,
        float(ckb(zs, y_s, zt, y_t)),
        float(ckw(zs, y_s, zt, y_t)),
        known,
    )


def run_feature_state(
    folder: str | Path, *, title: str = "", n: int = 500, seed: int = 0, data_root: str | Path | None = None
) -> FeatureState:
    """The state of a run folder of ``bures adapt``: its model on the data that its manifest names.

    Parameters
    ----------
    folder : path
        A finished run.
    title : str, optional
        In place of the method's name.
    n, seed
        As in `feature_state`.
    data_root : path, optional
        Folder of the data sets; None is the one of the run, then $BURES_DATA.
    """
    path = Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is no run folder; make one with: bures adapt --method source -o {path}")
    manifest = run_manifest(path)
    origin = manifest["data"].get("origin")
    if not origin:
        raise ValueError(f"{path} does not say where its data come from; accepted are runs of bures adapt")
    recipe = Recipe(**manifest["recipe"])
    root = data_root or origin.get("data_root")

    def read(spec: str, train: bool = True) -> Domain:
        return load_domain(spec, data_root=root, train=train, size=recipe.reading_size, in_memory=None)

    if origin.get("evaluation"):
        target = read(origin["evaluation"], train=False)
    else:
        target = read(origin["target"], train=not has_test_part(origin["target"]))
    accuracy = (manifest.get("final") or {}).get("accuracy")
    words = title or manifest["recipe"]["method"]
    label = words if accuracy is None else f"{words}: {100 * accuracy:.1f} % of the target right"
    separate = (manifest.get("final") or {}).get("batchnorm") == "target" and not recipe.joint_forward
    return feature_state(
        load_model(path), read(origin["source"]), target, title=label, own_statistics=separate, n=n, seed=seed
    )


def tsne_figure(states: Sequence[FeatureState], *, style: str = "light") -> Figure:
    """Maps of features: above by domain, below by class, a column for each state.

    Parameters
    ----------
    states : sequence of FeatureState
        Before and after adaptation.
    style : {"light", "dark", "print"}, optional
        See `style_named`.

    Returns
    -------
    Figure
        The source is drawn as '+', the target as 'o'. Numbers below are of the features, not of the maps.
    """
    look = style_named(style)
    with look.applied(), fonts_for(name for state in states for name in (*state.names, *state.classes)):
        figure = Figure(figsize=(4.4 * len(states), 9.0), layout="constrained")
        grid = figure.subplots(2, len(states), squeeze=False)
        for column, state in enumerate(states):
            by_domain, by_class = grid[:, column]
            _by_domain(by_domain, state, look)
            _by_class(by_class, state, look)
            by_domain.set_title(state.title)
            by_domain.set_xlabel(f"A-distance {state.a_distance:.2f}")
            told = "" if state.known else " (predicted classes)"
            measured = f"class silhouette {state.silhouette:.2f}   CKB {state.ckb:.3f}   CKW {state.ckw:.3f}{told}"
            by_class.set_xlabel(measured)
            for axes in (by_domain, by_class):
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set(visible=True, color=look.faint)
        grid[0, 0].set_ylabel("by domain")
        grid[1, 0].set_ylabel("by class; names in bold: source")
        figure.legend(handles=_handles(states[0], look), loc="outside lower center", ncols=2)
    return figure


def _by_domain(axes: Any, state: FeatureState, look: Style) -> None:
    axes.scatter(*state.plane_s.T, marker="+", s=24, linewidths=0.9, color=look.colour(0))
    axes.scatter(*state.plane_t.T, marker="o", s=16, linewidths=0.8, facecolors="none", edgecolors=look.colour(1))


def _by_class(axes: Any, state: FeatureState, look: Style) -> None:
    for label, name in enumerate(state.classes):
        colour = look.colour(label)
        own_s, own_t = state.plane_s[state.y_s == label], state.plane_t[state.y_t == label]
        axes.scatter(*own_s.T, marker="+", s=24, linewidths=0.9, color=colour)
        axes.scatter(*own_t.T, marker="o", s=16, linewidths=0.8, facecolors="none", edgecolors=colour)
        if len(state.classes) <= TOGETHER:
            for own, weight in ((own_s, "bold"), (own_t, "normal")):
                name_class(axes, name, own, look.paper, weight=weight, zorder=5)


def _handles(state: FeatureState, look: Style) -> list[Line2D]:
    marks: dict[str, Any] = {"ls": "", "ms": 7}
    return [
        Line2D([], [], marker="+", color=look.colour(0), label=f"source: {state.names[0]}", **marks),
        Line2D([], [], marker="o", mfc="none", color=look.colour(1), label=f"target: {state.names[1]}", **marks),
    ]
