"""Tables of single trials for docs/trials.md: which trial stands in which cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from page_tables import markdown_table

TRIAL_SEED = 100  # by which options were chosen; it is among the seeds of no table

PHOTOGRAPHS = {"Ar → Cl": "office-home/Art|office-home/Clipart", "Pr → Ar": "office-home/Product|office-home/Art"}
FEATURES = {
    "Ar → Cl": "office_home/resnet50.npz#Art|office_home/resnet50.npz#Clipart",
    "Cl → Pr": "office_home/resnet50.npz#Clipart|office_home/resnet50.npz#Product",
}
SHORT = ("epochs=1", "head_finish=null", "queue=512", "training_size=192")  # what all trials on photographs have
LONG = ("epoch=300", "epochs=10")
SMALL = ("batch_size=32", *LONG)
SEEN = ("queue=512", "queue_predictions=true")
FULL = "queue_full_gradient=true"


class Part(NamedTuple):
    """A method with some changes of the recipe; ``head`` stands before the names of the tasks."""

    method: str
    changes: tuple[str, ...] = ()
    head: str = ""


class TrialTable(NamedTuple):
    """Rows of labels and parts; each part has a cell for each task."""

    recipe: str
    tasks: dict[str, str]
    labels: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Part, ...]], ...]

    def render(self, accuracy: Callable[[str], str]) -> str:
        """The table in Markdown, with the accuracy that belongs to the key of a trial."""
        parts = self.rows[0][1]
        heads = [*self.labels, *(part.head + task for part in parts for task in self.tasks)]
        rows = [
            [*labels, *(accuracy(self.key(part, task)) for part in parts for task in self.tasks.values())]
            for labels, parts in self.rows
        ]
        return markdown_table(heads, rows, "l" * len(self.labels) + "r" * (len(heads) - len(self.labels)))

    def key(self, part: Part, task: str) -> str:
        """The key of a trial, as the ledger has it."""
        return "|".join([task, self.recipe, part.method, str(TRIAL_SEED), *sorted(part.changes)])


def _photographs(*changes: str) -> tuple[str, ...]:
    return (*SHORT, *changes)


def _both(*changes: str) -> tuple[Part, Part]:
    return Part("class-means", changes, "`class-means`, "), Part("ckw", changes, "`ckw`, ")


def _rising(method: str) -> tuple[Part, ...]:
    later = (Part(method, (f"options.ramp={epochs}.0",), f"ramp {epochs}, ") for epochs in (4, 10))
    return Part(method), *later


TABLES = {
    "full gradient": TrialTable(
        "office-home-best",
        PHOTOGRAPHS,
        ("method", "gradient through the batch"),
        (
            (("`im`", "no alignment"), (Part("im", _photographs()),)),
            (("`class-means`", "a 17th"), (Part("class-means", _photographs()),)),
            (("`ckw`", "a 17th"), (Part("ckw", _photographs()),)),
            (("`ckw`", "full, a quarter of the weight"), (Part("ckw", _photographs(FULL, "options.weight=0.25")),)),
            (("`class-means`", "full"), (Part("class-means", _photographs(FULL)),)),
            (
                ("`class-means`", "full, three times the weight"),
                (Part("class-means", _photographs(FULL, "options.weight=3.0")),),
            ),
            (("`ckb`", "full"), (Part("ckb", _photographs(FULL)),)),
            (("`ckw`", "full"), (Part("ckw", _photographs(FULL)),)),
            (
                ("`ckw`", "full, soft pseudo-labels"),
                (Part("ckw", _photographs(FULL, 'options.pseudo_labels="soft"')),),
            ),
        ),
    ),
    "small batches": TrialTable(
        "office-home-features",
        FEATURES,
        ("batch", "queue"),
        (
            (("256", "none"), _both()),
            (("32", "none"), _both(*SMALL)),
            (("32", "512"), _both(*SMALL, "queue=512")),
            (("32", "512, full gradient"), _both(*SMALL, "queue=512", FULL)),
        ),
    ),
    "predictions of a queue": TrialTable(
        "office-home-features-best",
        FEATURES,
        ("method", "batch", "queue"),
        (
            (("`im`", "256", "none"), (Part("im", LONG),)),
            (("`im`", "32", "none"), (Part("im", SMALL),)),
            (("`im`", "32", "512"), (Part("im", (*SMALL, *SEEN)),)),
            (("`mcc`", "32", "none"), (Part("mcc", SMALL),)),
            (("`mcc`", "32", "512"), (Part("mcc", (*SMALL, *SEEN)),)),
        ),
    ),
    "ramp": TrialTable(
        "office-home-features-best", FEATURES, ("method",), tuple(((f"`{m}`",), _rising(m)) for m in ("im", "ckw"))
    ),
}
