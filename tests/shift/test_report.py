"""Populations whose shift is known get the report they should, in every form."""

import json
import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import torch

import bures
from bures.data import GaussianClasses
from bures.methods import method_names
from bures.testing import PredictedLabels, out_of_fold_labels

EVEN, UNEVEN = np.full(3, 1 / 3), np.array([0.65, 0.25, 0.1])
MEANS = 3.0 * np.eye(3)
FAST = {"n_permutations": 99, "n_bootstrap": 50}


def draw(frequencies=EVEN, move=0.0, n=150, seed=0, means=MEANS):
    moved = means.copy()
    moved[1] += move
    rng = np.random.default_rng(seed)
    source = GaussianClasses(EVEN, means, [np.eye(3)] * 3).sample(n, rng)
    target = GaussianClasses(frequencies, moved, [np.eye(3)] * 3).sample(n, rng)
    return *source, *target


def found(report):
    return {finding.shift: finding.found for finding in report.findings}


@pytest.mark.parametrize("predicted", [False, True])
@pytest.mark.parametrize(
    ("data", "label", "conditional", "first"),
    [
        (draw(seed=1), False, False, "source"),
        (draw(UNEVEN, seed=2), True, False, "weight the source by class"),
        (draw(move=1.2, seed=3), False, True, "ckw"),
    ],
    ids=["none", "label", "conditional"],
)
def test_each_shift_is_told_from_the_others(data, label, conditional, first, predicted):
    xs, ys, xt, yt = data
    report = bures.shift_report(xs, ys, xt, None if predicted else yt, **FAST)
    assert found(report) == {"label": label, "marginal": label or conditional, "conditional": conditional}
    assert report.advice[0].method == first
    assert report.shifted == (label or conditional)
    assert report.labels == ("predicted" if predicted else "true")
    assert report.conditional is None or report.conditional.labels == report.labels
    assert report.source_accuracy == pytest.approx(0.9, abs=0.1) if predicted else np.isnan(report.source_accuracy)
    if conditional:
        assert report.ranked_classes()[0].name == 1


def test_label_and_conditional_shift_together():
    report = bures.shift_report(*draw(UNEVEN, move=1.5), **FAST)
    assert found(report) == {"label": True, "marginal": True, "conditional": True}
    assert report.headline.startswith("Both")
    assert 0.05 < report.label_share < 0.98


def test_a_conditional_shift_that_leaves_p_of_x_alone_is_found_with_labels():
    report = bures.shift_report(*bures.data.exchanged_regions(120), **FAST)
    assert found(report) == {"label": False, "marginal": False, "conditional": True}
    assert "although as a whole the features look alike" in report.headline
    assert any(tip.avoid for tip in report.advice)
    assert math.isnan(report.label_share)


def test_class_frequencies_explain_all_of_p_of_x_under_label_shift():
    report = bures.shift_report(*draw(UNEVEN, n=300), **FAST)
    assert report.label_share > 0.9


def test_estimated_frequencies_are_near_the_true_ones():
    xs, ys, xt, yt = draw(UNEVEN, n=400)
    report = bures.shift_report(xs, ys, xt, **FAST)
    true = np.bincount(yt, minlength=3) / len(yt)
    for row in report.classes:
        assert row.low - 0.02 <= true[row.name] <= row.high + 0.02
        assert row.frequency_target == pytest.approx(true[row.name], abs=0.08)


def test_label_shift_alone_is_not_taken_for_a_conditional_shift_of_predicted_classes():
    """Overlapping classes, so that predictions err: without the thinning this rejects far more often."""
    plain, thinned = 0, 0
    for seed in range(10):
        xs, ys, xt, _ = draw([0.8, 0.15, 0.05], n=500, seed=seed, means=1.6 * np.eye(3))
        report = bures.shift_report(xs, ys, xt, n_permutations=19, n_bootstrap=0, seed=seed)
        thinned += report.conditional.rejected
        source, target = out_of_fold_labels(xs, ys, xt, seed=seed)
        plain += bures.conditional_test(xs, source, xt, target, n_permutations=19, per_class=False).rejected
    assert plain >= 7
    assert thinned <= 3


def test_the_error_of_estimated_frequencies_is_no_conditional_shift():
    """A class that is rare in the source: its weight is a guess, and taken for exact, it would reject far too often."""
    found_shifts, even, rare = [], GaussianClasses(EVEN, 1.6 * np.eye(3), [np.eye(3)] * 3), [0.8, 0.15, 0.05]
    for seed in range(30):
        rng = np.random.default_rng(seed)
        xs, ys = GaussianClasses(rare, 1.6 * np.eye(3), [np.eye(3)] * 3).sample(250, rng)
        xt, _ = even.sample(250, rng)
        report = bures.shift_report(xs, ys, xt, statistic="means", n_permutations=59, n_bootstrap=0, seed=seed)
        found_shifts.append(found(report)["conditional"])
    assert sum(map(bool, found_shifts)) <= 3


def test_frequencies_that_cannot_be_evened_out_are_not_compared():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [8.0, 0.0]])
    ys, yt = np.repeat([0, 1], [115, 5]), np.repeat([0, 1], [2, 118])
    xs, xt = (centres[y] + rng.normal(size=(120, 2)) for y in (ys, yt))
    report = bures.shift_report(xs, ys, xt, **FAST)
    assert found(report) == {"label": True, "marginal": True, "conditional": None}
    assert "differ too much to be evened out, so that P(X|Y) could not be compared" in report.headline
    assert report.conditional is None
    assert report.advice[0].method == "weight the source by class"
    assert "evened out" in report.to_html()


def test_advice_names_methods_that_exist():
    from bures.shift._report import Finding
    from bures.shift._words import advise

    named = set()
    for pattern in range(8):
        flags = dict(zip(("label", "marginal", "conditional"), (pattern & 1, pattern & 2, pattern & 4), strict=True))
        findings = {shift: Finding(shift, bool(flag), 0.5, 0.5, 0.0, "") for shift, flag in flags.items()}
        tips = advise(findings, predicted=False)
        assert not tips[0].avoid
        named |= {name for tip in tips if " " not in tip.method.replace(", ", "") for name in tip.method.split(", ")}
    assert named >= {"ckw", "ckb", "ckb+mmd", "source", "dan"}
    assert named <= set(method_names())


# Forms


class Page(HTMLParser):
    """Tags that were opened and not closed, addresses that a browser would fetch, and the text."""

    VOID = ("meta", "line", "rect", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.fetched, self.text = [], [], []
        self.feed(text)

    def handle_startendtag(self, tag, attributes):
        assert tag in self.VOID

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole_escaped_and_needs_nothing_else(tmp_path):
    xs, ys, xt, yt = draw(UNEVEN, move=1.0)
    names = np.array(["<script>alert(1)</script>", 'a" onmouseover="x', "c & d"])
    report = bures.shift_report(xs, names[ys], xt, names[yt], **FAST)
    text = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    page = Page(text)
    assert page.open == []
    assert page.fetched == []
    assert "//" not in text
    assert "<script" not in text
    assert 'onmouseover="x"' not in text
    assert names[0] in page.text
    assert report.headline in page.text
    named = Page(report.to_html(title="<b>here.npz</b> → there.npz"))
    assert "<b>here.npz</b> → there.npz" in named.text
    assert named.open == []
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        report.to_html(tmp_path / "none" / "report.html")


def test_json_frame_and_text_agree():
    report = bures.shift_report(*draw(move=1.2), **FAST)
    data = json.loads(report.to_json())
    frame, findings = report.to_frame(), report.to_frame("findings")
    assert isinstance(frame, pd.DataFrame)
    assert frame["class"].tolist() == [0, 1, 2] == [row["name"] for row in data["classes"]]
    assert findings["p_value"].tolist() == [row["p_value"] for row in data["findings"]]
    assert data["shifted"] is True
    assert data["conditional"]["statistic"] == pytest.approx(report.conditional.statistic)
    assert report.headline in str(report)
    assert "1" in str(report)
    assert repr(report).startswith("ShiftReport(")
    with pytest.raises(ValueError, match="what='rows' is unknown"):
        report.to_frame("rows")


def test_torch_input_and_reproducibility():
    data = draw(move=0.6)
    first, second = bures.shift_report(*data, **FAST), bures.shift_report(*map(torch.tensor, data), **FAST)
    assert first.to_json() == second.to_json()


# Predictions of one's own


def test_predictions_need_their_counterpart_in_the_source():
    xs, ys, xt, yt = draw()
    source, target = out_of_fold_labels(xs, ys, xt)
    rows = np.eye(3)[yt]
    for options in ({"yt": target}, {"yt": rows}, {"yt": rows.tolist()}, {"yt": yt, "labels": "predicted"}):
        with pytest.raises(ValueError, match=r"yt holds predictions, so that predicted_s is needed"):
            bures.shift_report(xs, ys, xt, **options, **FAST)
    given = bures.shift_report(xs, ys, xt, target, predicted_s=source, **FAST)
    assert given.findings == bures.shift_report(xs, ys, xt, **FAST).findings
    soft = bures.shift_report(
        xs, ys, xt, np.eye(3)[np.asarray(target)], predicted_s=np.eye(3)[np.asarray(source)], **FAST
    )
    assert soft.findings == given.findings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "soft"}, "labels='soft' is unknown"),
        ({"n_permutations": 5}, "n_permutations=5 can never reject"),
        ({"max_samples": 0}, "max_samples=0 is out of range"),
        ({"n_bootstrap": -1}, "n_bootstrap=-1 is out of range; .* 0 leaves it out"),
        ({"labels": "true"}, "labels='true' but yt is None"),
        ({"predicted_s": np.zeros(150, int)}, "predicted_s is given but yt is None"),
    ],
)
def test_wrong_options_are_named(options, message):
    xs, ys, xt, _ = draw()
    with pytest.raises(ValueError, match=message):
        bures.shift_report(xs, ys, xt, **options)


def test_wrong_labels_are_named():
    xs, ys, xt, yt = draw()
    with pytest.raises(ValueError, match="predicted_s is given but yt holds true labels"):
        bures.shift_report(xs, ys, xt, yt, predicted_s=ys)
    with pytest.raises(ValueError, match="labels='true', but yt holds predictions"):
        bures.shift_report(xs, ys, xt, PredictedLabels(yt), labels="true")
    with pytest.raises(ValueError, match="numbers on one side and names on another"):
        bures.shift_report(xs, ys, xt, np.array(["a", "b", "c"])[yt])
    with pytest.raises(ValueError, match="ys holds classes of dtype float64; accepted are integers and strings"):
        bures.shift_report(xs, ys.astype(float), xt, yt)
    with pytest.raises(ValueError, match=r"yt is -1 for all 150 samples.*or yt=None to have both domains predicted"):
        bures.shift_report(xs, ys, xt, np.full(150, -1))
    with pytest.raises(ValueError, match="the source must be labelled"):
        bures.shift_report(xs, None, xt, yt)
    with pytest.raises(ValueError, match="yt has 149 labels but xt has 150 samples"):
        bures.shift_report(xs, ys, xt, yt[1:])


# Unusual input


def test_classes_as_objects_are_what_they_hold():
    xs, ys, xt, yt = draw(move=1.2)
    plain = bures.shift_report(xs, ys, xt, yt, **FAST)
    assert (
        bures.shift_report(xs, ys.astype(object), xt, pd.Series(yt, dtype="Int64"), **FAST).findings == plain.findings
    )
    names = np.array(["a", "b", "c"], dtype=object)
    assert bures.shift_report(xs, names[ys], xt, names[yt].astype(str), **FAST).findings[0] == plain.findings[0]


def test_one_class_only():
    xs, _, xt, _ = draw()
    for yt in (np.zeros(150, int), None):
        report = bures.shift_report(xs, np.zeros(150, int), xt + 1.0, yt, **FAST)
        assert found(report) == {"label": False, "marginal": True, "conditional": True}
        assert any("one class only" in note for note in report.notes)
        assert report.to_html()


def test_no_common_class():
    xs, ys, xt, yt = draw()
    report = bures.shift_report(xs, ys, xt, yt + 10, **FAST)
    assert found(report) == {"label": True, "marginal": False, "conditional": None}
    assert report.conditional is None
    assert json.loads(report.to_json())["conditional"] is None
    assert "not asked" in str(report)
    assert "not asked" in report.to_html()
    for part in (report, bures.shift_report(xs[:1], ys[:1], xt[:1], ys[:1] + 10, **FAST)):
        assert "no class occurs in both, so that P(X|Y) could not be compared" in part.headline
        assert [tip.method for tip in part.advice] == ["name the classes alike in both domains"]


def test_constant_features_and_a_class_of_one_sample():
    _, ys, _, yt = draw()
    ys, yt = np.array([*ys[:-1], 9]), np.array([*yt[:-1], 9])
    for given in (yt, None):
        report = bures.shift_report(np.ones((150, 2)), ys, np.ones((150, 2)), given, **FAST)
        assert report.findings[1].p_value == 1.0
        assert not report.findings[1].found
        assert report.to_html()


def test_hundreds_of_classes_are_shown_in_part():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(250), 2)
    x = rng.normal(size=(250, 2))[y]
    report = bures.shift_report(
        x + 0.1 * rng.normal(size=x.shape), y, x + 0.1 * rng.normal(size=x.shape), y, n_permutations=19, n_bootstrap=0
    )
    assert "... and 238 more classes" in str(report)
    assert "and 50 more classes" in report.to_html()
    assert len(report.to_frame()) == 250


def test_large_domains_are_looked_at_in_part_and_the_report_says_so():
    report = bures.shift_report(*draw(n=300), max_samples=60, **FAST)
    assert (report.n_source, report.n_target) == (60, 60)
    assert sum("60 of 300 samples" in note for note in report.notes) == 2


def test_too_few_permutations_for_three_questions_are_noted():
    data = draw(UNEVEN, move=3.0, seed=3)
    short = bures.shift_report(*data, n_permutations=58, n_bootstrap=0)
    assert not short.shifted
    assert any("no shift can be found with 58 permutations" in note and "at least 59" in note for note in short.notes)
    enough = bures.shift_report(*data, n_permutations=59, n_bootstrap=0)
    assert found(enough) == {"label": True, "marginal": True, "conditional": True}
    assert not any("permutations" in note for note in enough.notes)


def test_no_class_is_marked_where_no_conditional_shift_was_found():
    report = bures.shift_report(*draw(n=40, seed=14), n_permutations=59, n_bootstrap=0)
    assert found(report)["conditional"] is False
    assert report.conditional.shifted_classes == (1,)  # of classes alone, before three questions share the level
    assert "shifted" not in str(report).partition("What to do")[0]
    assert '<td class="mark">shifted</td>' not in report.to_html()
    assert any("class 1 would count as shifted" in note for note in report.notes)
    clear = bures.shift_report(*draw(move=1.2, seed=3), **FAST)
    assert "shifted" in str(clear).partition("What to do")[0]
    assert '<td class="mark">shifted</td>' in clear.to_html()
    assert not any("would count as shifted" in note for note in clear.notes)


@pytest.mark.parametrize("names", [np.array([0, 1, 2]), np.array(["cat", "dog", "emu"])])
def test_what_predicts_no_classes_is_refused(names):
    from sklearn.linear_model import LinearRegression

    class Numbered(LinearRegression):
        def fit(self, x, y):
            return super().fit(x, np.unique(y, return_inverse=True)[1])

    xs, ys, xt, _ = draw(n=40)
    with pytest.raises(ValueError, match=r"classifier predicts .*, which is no class of ys"):
        bures.shift_report(xs, names[ys], xt, classifier=Numbered(), **FAST)
