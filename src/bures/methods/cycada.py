"""Cycle-consistent adversarial domain adaptation: source images in the style of the target, then aligned features."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, l1_loss
from torch.optim import Adam, Optimizer

from bures.arrays import at_least_float32, check_not_negative, check_positive
from bures.methods._adversarial import AdversarialTerm
from bures.methods._checks import check_whole
from bures.methods._method import Method, Schedule
from bures.methods._own_training import NETWORK, OwnStep, OwnTraining, StepReport
from bures.methods._registry import register
from bures.methods._translators import ImageDiscriminator, Translator
from bures.networks import Network
from bures.networks._batchnorm import adaptable_layers

__all__ = ["CyCADA", "cycada"]

SIDES = (8, 64)  # of images that the translators are made for, in pixels


@register(
    "cycada",
    matches="marginal",
    paper="Hoffman et al., ICML 2018",
    cost="four image networks, nHWw²",
    samples="small images",
)
def cycada(
    *,
    weight: float = 1.0,
    cycle: float = 1.0,
    semantics: float = 1.0,
    classifier_share: float = 0.2,
    translation_share: float = 0.5,
    translator_width: int = 32,
    translator_blocks: int = 3,
    translator_lr: float = 2e-4,
    hidden: int = 500,
) -> Method:
    r"""Source images translated to the style of the target, then features from which the domain cannot be told.

    .. math::
        \min_{f, G} \max_D\; CE(f(G_{t}(x_s)), y_s) + L_{GAN}(G_{t}, D_t) + L_{GAN}(G_{s}, D_s)
            + \lambda_c L_{cycle} + \lambda_s L_{sem} - \lambda_p L_D(f(G_{t}(x_s)), f(x_t))

    .. math::
        L_{cycle} = \overline{|G_{s}(G_{t}(x_s)) - x_s|} + \overline{|G_{t}(G_{s}(x_t)) - x_t|}, \quad
        L_{sem} = CE(f_s(G_{t}(x_s)), y_s) + CE(f_s(G_{s}(x_t)), \arg\max f_s(x_t))

    Hoffman et al., "CyCADA: cycle-consistent adversarial domain adaptation", ICML 2018, for digits. It trains in
    stages, shares of the recipe's steps: (1) the classifier :math:`f_s` on the source, for ``classifier_share``;
    (2) with :math:`f_s` held fixed, translators :math:`G_t` and :math:`G_s` of images to the target and to the source,
    with discriminators D that score patches by least squares, for ``translation_share``; (3) the classifier, from
    :math:`f_s` on, with translated source images and the game of `dann` on the features, whose weight
    :math:`\lambda_p` is ``weight`` with the sigmoid ramp of `dann` over this stage.

    From the authors' program: :math:`\lambda_c = \lambda_s = 1`, the source's labels rather than predictions in
    :math:`L_{sem}`, Adam with rate 2e-4 and momentum 0.5 for translators and their discriminators, a discriminator of
    features with hidden layers of 500. As published, and unlike that program, :math:`f_s` does not learn on beside the
    translators, and :math:`L_{sem}` counts throughout; there it waits until the classifier's loss on the source is at
    most 1. Ours: the shares of the stages, where the authors train each to its end;
    smaller translators (3 residual blocks of 64 channels at half the resolution; CycleGAN's have 9 of 256 at a
    quarter); a rate of the translators that falls to zero over the second half of their stage; no store of older
    translations for the discriminators; equal weights of the two games, where their program counts that of the
    target twice; and in the last stage one network for both domains with a reversed gradient, where their program
    alternates between two networks, as ADDA does.
    """
    return CyCADA(
        AdversarialTerm(Schedule(weight, 0.0, None, "sigmoid"), hidden=hidden, dropout=0.0),
        cycle=cycle,
        semantics=semantics,
        shares=(classifier_share, translation_share),
        translator_width=translator_width,
        translator_blocks=translator_blocks,
        translator_lr=translator_lr,
    )


class CyCADA(OwnTraining):
    """The three stages of CyCADA; arguments are options of `cycada`."""

    optimiser_names = ("translators", "judges")
    to_target: nn.Module
    to_source: nn.Module
    judge_target: nn.Module
    judge_source: nn.Module
    teacher: nn.Module

    def __init__(
        self,
        domains: AdversarialTerm,
        *,
        cycle: float,
        semantics: float,
        shares: tuple[float, float],
        translator_width: int,
        translator_blocks: int,
        translator_lr: float,
    ) -> None:
        super().__init__("cycada", [domains])
        for name, value in (("cycle", cycle), ("semantics", semantics)):
            check_not_negative(name, value)
        for name, value in zip(("classifier_share", "translation_share"), shares, strict=True):
            if not 0 < check_not_negative(name, value) < 1:
                raise ValueError(f"{name}={value!r} is out of range; accepted is above 0 to below 1")
        if sum(shares) >= 1:
            raise ValueError(
                f"classifier_share={shares[0]!r} and translation_share={shares[1]!r} leave no steps for the last "
                "stage; accepted is a sum below 1"
            )
        self.cycle, self.semantics, self.shares = cycle, semantics, shares
        self.width = check_whole("translator_width", translator_width)
        self.n_blocks = check_whole("translator_blocks", translator_blocks)
        self.lr = check_positive("translator_lr", translator_lr)

    def prepare(self, network: Network, shape: tuple[int, ...]) -> None:
        """Make translators and discriminators for images (C, H, W); other samples are refused."""
        if len(shape) != 3:
            raise ValueError(
                f"method 'cycada' translates images but the samples are feature vectors of length {shape[0]}; accepted "
                "are images of digits; for features try 'dann' or 'cdan+e'"
            )
        if not SIDES[0] <= min(shape[1:]) <= max(shape[1:]) <= SIDES[1]:
            raise ValueError(
                f"method 'cycada' translates small images but the network sees {shape[1]} x {shape[2]} pixels; "
                f"accepted are sides from {SIDES[0]} to {SIDES[1]}, see image_size"
            )
        self.to_target, self.to_source = (Translator(shape[0], self.width, self.n_blocks) for _ in range(2))
        self.judge_target, self.judge_source = (ImageDiscriminator(shape[0], self.width) for _ in range(2))
        self.teacher = copy.deepcopy(network).requires_grad_(False)  # its weights come with the second stage

    def make_optimisers(self) -> dict[str, Optimizer]:
        """One for both translators, one for both discriminators of images."""
        if not hasattr(self, "to_target"):
            raise RuntimeError("method 'cycada' has no translators yet; call method.prepare(network, (C, H, W)) first")
        pairs = ((self.to_target, self.to_source), (self.judge_target, self.judge_source))
        return {
            name: Adam([p for part in pair for p in part.parameters()], lr=self.lr, betas=(0.5, 0.999))
            for name, pair in zip(self.optimiser_names, pairs, strict=True)
        }

    def check_length(self, n_steps: int) -> None:
        """Raise where a stage would have no step."""
        self.boundaries(n_steps)

    def boundaries(self, n_steps: int) -> tuple[int, int]:
        """The first steps of the second and of the third stage."""
        second = max(round(self.shares[0] * n_steps), 1)
        third = max(round(sum(self.shares) * n_steps), second + 1)
        if third >= n_steps:
            raise ValueError(
                f"a training of {n_steps} steps has no room for the three stages of method 'cycada'; train longer, or "
                "change classifier_share and translation_share"
            )
        return second, third

    def step(self, at: OwnStep) -> StepReport:
        """One step of the stage that the training is in."""
        second, third = self.boundaries(at.n_steps)
        if at.number < second:
            return self._classifier(at)
        if at.number < third:
            if at.number == second:
                self.teacher.load_state_dict(at.network.state_dict())
            return self._translation(at, (at.number - second) / (third - second))
        return self._adaptation(at, (at.number - third) / (at.n_steps - third))

    def _classifier(self, at: OwnStep) -> StepReport:
        logits = at.network(at.normalise(at.x_s)).logits
        loss = at.cross_entropy(logits, at.y_s)
        at.update(NETWORK, loss)
        return StepReport({"loss": loss, "cross_entropy": loss}, {}, _accuracy(logits, at.y_s))

    def _translation(self, at: OwnStep, progress: float) -> StepReport:
        x_s, x_t = 2 * at.x_s - 1, 2 * at.x_t - 1
        as_target, as_source = self.to_target(x_s), self.to_source(x_t)
        logits_s, logits_t = self._semantics_of(at, as_target), self._semantics_of(at, as_source)
        with torch.no_grad():
            seen_t, seen_s = self._semantics_of(at, x_t), self._semantics_of(at, x_s)
        losses = {
            "translation": _squares(self.judge_target(as_target), 1.0) + _squares(self.judge_source(as_source), 1.0),
            "cycle": l1_loss(self.to_source(as_target), x_s) + l1_loss(self.to_target(as_source), x_t),
            "semantics": cross_entropy(logits_s, at.y_s) + cross_entropy(logits_t, seen_t.argmax(dim=1)),
        }
        weights = {"translation": 1.0, "cycle": self.cycle, "semantics": self.semantics}
        total = torch.stack([weights[name] * value for name, value in losses.items()]).sum()
        rate = min(1.0, 2 - 2 * progress)  # constant for half of the stage, then down to zero
        at.update("translators", total, rate)
        judged = (
            _squares(self.judge_target(x_t), 1.0)
            + _squares(self.judge_target(as_target.detach()), 0.0)
            + _squares(self.judge_source(x_s), 1.0)
            + _squares(self.judge_source(as_source.detach()), 0.0)
        ) / 2
        at.update("judges", judged, rate)
        return StepReport({"loss": total, **losses, "images": judged}, weights, _accuracy(seen_s, at.y_s))

    def _adaptation(self, at: OwnStep, progress: float) -> StepReport:
        with torch.no_grad():
            translated = (self.to_target(2 * at.x_s - 1) + 1) / 2
        batch = at.forward(translated.to(at.x_s.dtype), at.x_t)
        cross_entropy_ = at.cross_entropy(batch.logits_s, batch.y_s)
        (term,) = self.terms
        assert isinstance(term, AdversarialTerm)
        weight = term.schedule(0.0, progress)
        value, contribution = term.weighted(batch, weight)
        loss = cross_entropy_ + contribution
        at.update(NETWORK, loss)
        losses = {"loss": loss, "cross_entropy": cross_entropy_, term.name: value}
        return StepReport(losses, {term.name: weight}, _accuracy(batch.logits_s, batch.y_s))

    def _semantics_of(self, at: OwnStep, images: Tensor) -> Tensor:
        """Logits of the fixed classifier, which normalises a batch of either domain by itself as training does."""
        self.teacher.eval()
        for layer in adaptable_layers(self.teacher):
            layer.train()
        logits: Tensor = self.teacher(at.normalise((images + 1) / 2)).logits
        return at_least_float32(logits)


def _squares(scores: Tensor, wanted: float) -> Tensor:
    return (scores - wanted).square().mean()


@torch.no_grad()
def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(dim=1) == labels).float().mean()
