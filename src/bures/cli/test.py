"""``bures test``: whether two domains differ, as an exit code for pipelines."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

import typer

import bures
from bures.cli._options import AsJson, DataRoot
from bures.cli._progress import progress_bar
from bures.cli._samples import class_names, feature_rows, load_pair, read_eps
from bures.files import to_json
from bures.testing import PredictedLabels, out_of_fold_labels

__all__ = ["two_sample_test"]

SHIFT, ERROR, INTERRUPTED = 1, 2, 130
KNOWN = (OSError, ValueError, TypeError, ImportError, typer.Exit)


class Statistic(StrEnum):
    """Statistics by name: the first three compare P(X|Y), the others P(X)."""

    CKW = "ckw"
    CKB = "ckb"
    MEANS = "means"
    MMD = "mmd"
    KERNEL_BURES = "kernel-bures"


CONDITIONAL = (Statistic.CKW, Statistic.CKB, Statistic.MEANS)


def exit_codes_that_mean_something(command: Callable[..., None]) -> Callable[..., None]:
    """Let no failure of any kind leave with 1, the code of a shift: Python's own for an unexpected error is 1."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KNOWN:  # the application shows them in one line
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception:
            traceback.print_exc()
            raise typer.Exit(ERROR) from None

    return run


@exit_codes_that_mean_something
def two_sample_test(
    source: Annotated[
        str, typer.Argument(help="Feature file (.npz, .npy, .mat, .csv, .parquet), file.npz#domain or name.")
    ],
    target: Annotated[str, typer.Argument(help="The same for the target.")],
    conditional: Annotated[
        bool,
        typer.Option("--conditional/--marginal", help="Compare P(X|Y), which needs labels, or P(X)."),
    ] = True,
    statistic: Annotated[
        Statistic | None,
        typer.Option(help="ckw (default), ckb or means with --conditional; mmd (default) or kernel-bures."),
    ] = None,
    permutations: Annotated[int, typer.Option(help="Number of permutations.")] = 999,
    level: Annotated[float, typer.Option(help="How often a shift may be found where there is none.")] = 0.05,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict the classes of both domains out of fold; needs source labels.")
    ] = False,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="The labels in both files are predictions, made out of fold.")
    ] = False,
    aggregate: Annotated[bool, typer.Option("--aggregate", help="Test with several bandwidths at once.")] = False,
    eps: Annotated[str, typer.Option(help="Regulariser of ckb and ckw: a number or 'auto'.")] = "0.01",
    n_features: Annotated[
        str, typer.Option("--features", help="Nyström features: a number, 'auto', or 'exact' for the kernel itself.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the permutations.")] = 0,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Test whether two domains differ.

    Exit code 0: no shift found; 1: a shift was found; 2: an error.
    """
    chosen = statistic or (Statistic.CKW if conditional else Statistic.MMD)
    if (chosen in CONDITIONAL) != conditional:
        wanted = "ckw, ckb or means" if conditional else "mmd or kernel-bures"
        raise ValueError(f"--statistic {chosen} does not go with this test; accepted is {wanted}")
    if not conditional and (predict or predicted):
        raise ValueError("--predict and --predicted concern labels, and --marginal uses none")
    if predict and predicted:
        raise ValueError("--predict makes predictions and --predicted says that the files hold them; pass one")
    domains = load_pair(source, target, data_root, labels=(conditional, conditional and not predict))
    xs, xt = (feature_rows(domain) for domain in domains)
    options: dict[str, Any] = {
        "statistic": str(chosen),
        "n_permutations": permutations,
        "level": level,
        "seed": seed,
        "bandwidth": "aggregate" if aggregate else "shared",
        "n_features": _read_features(n_features),
    }
    ys: Any = None
    yt: Any = None
    if conditional:
        if domains[1].labels is None and not predict:
            raise ValueError(
                f"{domains[1].name!r} has no labels, which --conditional needs; --predict predicts the classes of both "
                "domains out of fold, and --marginal compares P(X) without labels"
            )
        if domains[0].labels is None:
            raise ValueError(f"{domains[0].name!r} has no labels, which --conditional needs; --marginal compares P(X)")
        ys = class_names(domains[0])
        yt = None if predict else class_names(domains[1])
        options["eps"] = read_eps(eps)
    with progress_bar("permuting") as report:
        if not conditional:
            result = bures.marginal_test(xs, xt, progress=report, **options)
        else:
            if predict:
                ys, yt = out_of_fold_labels(xs, ys, xt, seed=seed)
            elif predicted:
                ys, yt = PredictedLabels(ys), PredictedLabels(yt)
            result = bures.conditional_test(xs, ys, xt, yt, progress=report, **options)
    print(to_json(result.to_dict()) if as_json else result)
    if result.rejected:
        raise typer.Exit(SHIFT)


def _read_features(text: str) -> str | int | None:
    if text in ("auto", "exact"):
        return text if text == "auto" else None
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"--features {text!r} is not accepted; accepted is a number, 'auto' or 'exact'") from error
