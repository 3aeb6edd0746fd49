"""Tables of single trials for docs/trials.md: which trial stands in which cell."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

from page_tables import markdown_table

TRIAL_SEED = 100  # by which options were chosen; it is among the seeds of no table

PHOTOGRAPHS = {"Ar → Cl": "office-home/Art|office-home/Clipart", "Pr → Ar": "office-home/Product|office-home/Art"}
SHORT_NAMES = {"Art": "Ar", "Clipart": "Cl", "Product": "Pr", "Real_World": "Rw"}
ALL_FEATURES = {
    f"{SHORT_NAMES[a]} → {SHORT_NAMES[b]}": f"office_home/resnet50.npz#{a}|office_home/resnet50.npz#{b}"
    for a, b in permutations(SHORT_NAMES, 2)
}
FEATURES = {name: ALL_FEATURES[name] for name in ("Ar → Cl", "Cl → Pr")}
SHORT = ("epochs=1", "head_finish=null", "queue=512", "training_size=192")  # what all trials on photographs have
LONG = ("epoch=300", "epochs=10")
SMALL = ("batch_size=32", *LONG)
SEEN = ("queue=512", "queue_predictions=true")
FULL = "queue_full_gradient=true"


def without_neighbours(changes: list[str]) -> bool:
    """Whether a trial with these changes has no term of neighbours; those that have it have a table of their own."""
    return not any(change.startswith("options.neighbours=") for change in changes)


def with_the_full_gradient(changes: list[str]) -> bool:
    """Of the former, one with the full gradient of the alignment beside a queue."""
    return without_neighbours(changes) and FULL in changes


def with_a_small_gradient(changes: list[str]) -> bool:
    """Of the former, one with the small part of that gradient."""
    return without_neighbours(changes) and FULL not in changes


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


def _larger(method: str, **options: float) -> tuple[Part, ...]:
    changes = (f"options.{name}={value}" for name, value in options.items())
    return (Part(method, _photographs(FULL, "batch_size=64", "epoch=600", "lr=0.002", *changes)),)


TABLES = {
    "neighbours on features": TrialTable(
        "office-home-features-neighbours",
        ALL_FEATURES,
        ("terms on predictions",),
        (
            (
                ("entropy 0.2, diversity 0.2",),
                (Part("im", ("options.diversity=0.2", "options.entropy=0.2", "options.neighbours=0.0")),),
            ),
            (("neighbours 1, diversity 0.5",), (Part("im"),)),
        ),
    ),
    "alignment beside neighbours": TrialTable(
        "office-home-features-neighbours",
        {"Pr → Ar": ALL_FEATURES["Pr → Ar"]},
        ("method", "alignment"),
        (
            (("`im`", "none"), (Part("im"),)),
            (("`class-means`", "rises over the first 360 of 1 800 steps"), (Part("class-means"),)),
            (("`ckw`", "the same"), (Part("ckw"),)),
            (("`ckw`", "rises over 1 440 steps"), (Part("ckw", ("options.ramp=2.4",)),)),
            (
                ("`ckw`", 'a quarter of the weight, `eps = "auto"`'),
                (Part("ckw", ('options.eps="auto"', "options.weight=0.25")),),
            ),
            (
                ("`ckw`", "begins after 900 steps"),
                (Part("ckw", ("options.entropy_start=0.0", "options.ramp=0.9", "options.start=1.5")),),
            ),
        ),
    ),
    "neighbours": TrialTable(
        "office-home-best",
        PHOTOGRAPHS,
        ("method", "terms on predictions"),
        (
            (("`ckw`", "entropy 0.1, diversity 0.1"), _larger("ckw")),
            (("`ckw`", "entropy 0.2, diversity 0.2"), _larger("ckw", entropy=0.2, diversity=0.2)),
            (("`im`", "neighbours 1, diversity 0.5"), _larger("im", entropy=0.0, neighbours=1.0, diversity=0.5)),
            (
                ("`class-means`", "neighbours 1, diversity 0.5"),
                _larger("class-means", entropy=0.0, neighbours=1.0, diversity=0.5),
            ),
            (("`ckw`", "neighbours 1, diversity 0.5"), _larger("ckw", entropy=0.0, neighbours=1.0, diversity=0.5)),
            (("`ckw`", "neighbours 1, diversity 0.3"), _larger("ckw", entropy=0.0, neighbours=1.0, diversity=0.3)),
            (
                ("`ckw`", "neighbours 1, diversity 0.5, one neighbour instead of two"),
                _larger("ckw", entropy=0.0, neighbours=1.0, diversity=0.5, n_neighbours=1),
            ),
            (
                ("`ckw`", "neighbours 1, diversity 0.5, entropy 0.1"),
                _larger("ckw", entropy=0.1, neighbours=1.0, diversity=0.5),
            ),
            (("`ckw`", "neighbours 2, diversity 1"), _larger("ckw", entropy=0.0, neighbours=2.0, diversity=1.0)),
        ),
    ),
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
