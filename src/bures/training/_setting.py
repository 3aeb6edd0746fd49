"""What a run works on: domains that are aligned and hidden, a network, a method and an evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bures.data import Domain, HiddenLabels, ImageFiles, align_classes, align_columns
from bures.data._columns import with_columns
from bures.data._samples import fits_in_memory
from bures.methods import Method
from bures.networks import Network
from bures.training._assembly import NetworkSpec, assemble, fit_samples
from bures.training._batches import PairData
from bures.training._evaluation import Evaluator
from bures.training._holdout import hold_out
from bures.training._inputs import Inputs
from bures.training._own_steps import sample_shape, warn_of_what_is_ignored
from bures.training._plan import derive_seed
from bures.training._recipe import Recipe
from bures.training._run_folder import checksum

__all__ = ["Setting", "fingerprint_of", "make_ready", "prepare"]

SHOWN = 4096  # source samples that validators see


@dataclass
class Setting:
    """What a run works on, ready for training."""

    recipe: Recipe
    spec: NetworkSpec
    network: Network
    inputs: Inputs
    method: Method
    source: Domain
    target: Domain
    evaluator: Evaluator
    data: PairData
    checksums: dict[str, str]
    head_recipes: dict[str, Recipe] = field(default_factory=dict)  # see `bures.training._head_training`

    @property
    def batchnorm(self) -> str:
        """Whose BatchNorm statistics serve evaluation: those of training, or of the target."""
        if self.method.adapts_batchnorm:
            return "target"
        if self.recipe.evaluation_batchnorm != "auto":
            return self.recipe.evaluation_batchnorm
        return "target" if self.method.needs_target and not self.recipe.joint_forward else "training"

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns that the network takes, where a domain came with them."""
        return self.source.feature_names or self.target.feature_names

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What decides the training: a checkpoint fits where all of it is the same."""
        return fingerprint_of(self.recipe.to_dict(), self.checksums)


def fingerprint_of(recipe: Mapping[str, Any], checksums: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a recipe, but for places on this machine, and the checksums of the data."""
    options = {f"options.{name}": value for name, value in recipe["options"].items()}
    plain = {name: value for name, value in recipe.items() if name not in ("options", "weights")}
    return {**plain, **options, **{f"data.{side}": value for side, value in checksums.items()}}


def prepare(
    source: Domain,
    target: Domain,
    evaluation: Domain | None,
    recipe: Recipe,
    *,
    partial: bool,
    in_memory: bool | None = None,
    n_workers: int | None = None,
) -> Setting:
    """Align, hide, assemble: everything that has to be there before the first step."""
    _check_arguments(source, target, evaluation, recipe)
    method = recipe.build_method()
    warn_of_what_is_ignored(method, recipe)
    target, labelled = align_columns(source, align_classes(source, target, partial=partial)), source
    if evaluation is None:
        evaluation = target
    else:
        names = source.feature_names or target.feature_names
        evaluation = align_classes(source, evaluation, partial=True)
        evaluation = with_columns(evaluation, names, "the training", f"evaluation {evaluation.name!r}")
    if method.trains_on_target:
        if target.labels is None:
            raise ValueError(f"method={recipe.method!r} trains on target labels, but {target.name!r} has none")
        source = target
    spec, network, inputs = assemble(recipe, source.n_classes, source.samples.shape, target.samples.shape)
    same = evaluation is target
    make_ready(method, recipe, spec, network, inputs)
    source, target = (_stored(domain, spec, in_memory) for domain in (source, target))
    shown: Domain | None = None
    held: Domain | None = None
    if recipe.source_holdout or any(validator.needs_source for validator in recipe.build_validators()):
        # The upper bound trains on the target's labels; validators see those of the source even so.
        labelled = _stored(labelled, spec, in_memory) if method.trains_on_target else source
        labelled, shown, held = _judged(labelled, recipe)
        source = source if method.trains_on_target else labelled
    evaluation = target if same else _stored(evaluation, spec, in_memory)
    hidden: HiddenLabels | None = None
    if evaluation.labels is not None:
        evaluation, hidden = evaluation.hide_labels()
    masked = target.hide_labels()[0] if target.labels is not None else target
    evaluator = Evaluator(
        evaluation,
        hidden,
        masked,
        inputs,
        n_workers=n_workers or 0,
        validators=recipe.build_validators(),
        source=shown,
        validation=held,
    )
    data = PairData(source, masked, recipe, n_workers)
    method.check_length(recipe.epochs * data.steps_per_epoch)
    checksums = {"source": checksum(source), "target": checksum(masked)}
    # Labels are hidden in both, so the same samples have the same checksum; large domains take a while to hash.
    checksums["evaluation"] = checksums["target"] if same else checksum(evaluation)
    return Setting(recipe, spec, network, inputs, method, source, masked, evaluator, data, checksums)


def _check_arguments(source: object, target: object, evaluation: object, recipe: object) -> None:
    for name, value in (("source", source), ("target", target), ("evaluation", evaluation)):
        if not isinstance(value, Domain) and not (name == "evaluation" and value is None):
            raise TypeError(
                f"{name} is a {type(value).__name__}; accepted is a Domain (bures.data.load_domain makes one)"
            )
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"recipe is a {type(recipe).__name__}; accepted is a Recipe (bures.training.load_recipe reads one)"
        )
    assert isinstance(source, Domain)
    if source.labels is None:
        raise ValueError(f"source {source.name!r} is unlabelled; training needs its labels")


def make_ready(method: Method, recipe: Recipe, spec: NetworkSpec, network: Network, inputs: Inputs) -> None:
    """Give a method the parts of its own that depend on the network."""
    with torch.random.fork_rng(devices=[]):  # a method's weights depend on the seed of the recipe alone
        torch.default_generator.manual_seed(derive_seed(recipe.seed, "method"))
        method.prepare(network, sample_shape(inputs, spec.in_features))
        method.setup(int(getattr(network.head, "out_features", 0)), spec.n_classes)


def _judged(source: Domain, recipe: Recipe) -> tuple[Domain, Domain, Domain | None]:
    """What is left for training, samples of it that validators see, and those held out."""
    held = None
    if recipe.source_holdout:
        source, held = hold_out(source, recipe.source_holdout, derive_seed(recipe.seed, "holdout"))
    shown = source
    if len(source) > SHOWN:
        generator = torch.Generator().manual_seed(derive_seed(recipe.seed, "shown"))
        shown = source.take(torch.randperm(len(source), generator=generator)[:SHOWN].sort().values)
    return source, shown, held


def _stored(domain: Domain, spec: NetworkSpec, in_memory: bool | None) -> Domain:
    """The domain with samples of the size that the network asks for, in memory where they fit."""
    samples = fit_samples(domain.samples, spec)
    if isinstance(samples, ImageFiles):
        keep = fits_in_memory(samples) if in_memory is None else in_memory
        samples = samples.in_memory() if keep else samples
    return replace(domain, samples=samples)
