"""What the page says: the parts of a report, from the records of its runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bures.report import _words as words
from bures.report._calibration import reliability
from bures.report._class_parts import class_part, confusion_part, losses
from bures.report._environment import environments
from bures.report._points import map_data
from bures.report._runs import RunRecord, last_value
from bures.report._samples import ALIKE, hardest, least_certain
from bures.report._shift import DISTANCES, measure_shift
from bures.report._shown import Shown, name_runs
from bures.report._svg import Change, Series, line_chart, reliability_chart, shift_chart

__all__ = ["report_content"]

PICTURES = 16  # samples of each kind; half as many for more than three runs
TINY = 16  # side of pictures whose pixels are better seen than blurred

ACCURACIES = {"target_accuracy": "Target accuracy %", "source_accuracy": "Source accuracy %, in training"}
SCORES = {"target_score": "Label-free score (nats)", "target_effective_classes": "Effective classes predicted"}
NO_TERMS = ("epoch", "step", "lr", "seconds", *ACCURACIES, *SCORES)


def report_content(records: Sequence[RunRecord], *, tsne: int) -> dict[str, Any]:
    """All that the template asks for."""
    shown = name_runs(records)
    runs = [run.record for run in shown]
    return {
        "title": _title(runs),
        "summary": _summary(shown),
        "runs": [_run(run) for run in shown],
        "legend": len(shown) > 1,
        "charts": _charts(shown),
        "terms": _terms(shown),
        "shift": _shift(shown),
        "classes": class_part(shown),
        "confusion": [confusion_part(run) for run in shown if run.record.confusion is not None],
        "samples": _samples(shown),
        "calibration": [_calibration(run) for run in shown if _labelled(run.record)],
        "environment": environments(shown),
        "data": {"runs": [{"label": run.label, "style": run.style} for run in shown], **map_data(runs, tsne)},
    }


def _title(runs: Sequence[RunRecord]) -> str:
    tasks = {tuple(str(run.manifest["data"][side].get("name")) for side in ("source", "target")) for run in runs}
    return " → ".join(next(iter(tasks))) if len(tasks) == 1 else f"{len(runs)} runs on {len(tasks)} tasks"


def _summary(shown: Sequence[Shown]) -> list[str]:
    """The result in a sentence or two."""
    sentences = []
    scored = [run for run in shown if run.record.finished and run.record.accuracy is not None]
    adapted = [run for run in scored if run.record.method != "source"] or scored
    same = len({run.record.task for run in scored}) == 1
    if adapted and same:
        best = max(adapted, key=lambda run: run.record.accuracy or 0.0)
        equals = [run.label for run in adapted if run.record.accuracy == best.record.accuracy]
        n = best.record.manifest["data"]["evaluation"].get("samples") or 0
        verb = "recognises" if len(equals) == 1 else "recognise"
        share = f"{words.percent(best.record.accuracy)} of {words.count(int(n))} target samples"
        sentence = f"{words.joined(equals)} {verb} {share}"
        gain, statistics = _gain(best), _statistics(best)
        if gain is not None:
            size = f"{abs(100 * gain):.1f}"
            difference = "as many as" if size == "0.0" else f"{size} points {'more' if gain > 0 else 'less'} than"
            sentence += f", {difference} the same network trained on the source alone"
            sentence += f",{statistics}" if statistics else ""
        sentences.append(sentence + ".")
        sentences += losses(best)
    elif not scored and any(run.record.finished for run in shown):
        sentences.append(
            "The target has no labels, so that no accuracy can be given; the label-free score says how sure and how "
            "varied the predictions are."
        )
    unfinished = [run.label for run in shown if not run.record.finished]
    if unfinished:
        sentences.append(f"Not finished: {', '.join(unfinished)}.")
    return sentences


def _baseline_accuracy(run: Shown) -> float | None:
    """The better accuracy of the source-only network, with its own and with target BatchNorm statistics."""
    if run.baseline is None:
        return None
    found = [value for value in (run.baseline.final.get("accuracy_by_batchnorm") or {}).values() if value is not None]
    return max(found, default=run.baseline.accuracy)


def _statistics(run: Shown) -> str:
    """Which statistics the baseline of a gain has, where they are not those that it was evaluated with."""
    baseline = _baseline_accuracy(run)
    if run.baseline is None or baseline is None or baseline == run.baseline.accuracy:
        return ""
    target = (run.baseline.final.get("accuracy_by_batchnorm") or {}).get("target") == baseline
    return " with BatchNorm statistics of the target" if target else " with its own BatchNorm statistics"


def _gain(run: Shown) -> float | None:
    baseline, accuracy = _baseline_accuracy(run), run.record.accuracy
    return None if baseline is None or accuracy is None else accuracy - baseline


def _run(run: Shown) -> dict[str, Any]:
    """The card of a run."""
    record, final = run.record, run.record.final
    gain, best = _gain(run), final.get("best") or {}
    score = final.get("score", last_value(record.epochs, "target_score"))
    chosen = (
        f"{words.percent(best.get('accuracy'))} in epoch {best.get('epoch')}"
        if best.get("accuracy") is not None
        else None
    )
    adabn = (final.get("accuracy_by_batchnorm") or {}).get("target") if record.method == "source" else None
    return {
        "label": run.label,
        "style": run.style,
        "status": str(record.manifest.get("status")),
        "finished": record.finished,
        "upper_bound": bool(record.manifest.get("trains_on_target_labels")),
        "accuracy": None if record.accuracy is None else f"{100 * record.accuracy:.1f}",
        "gain": None if gain is None else words.points(gain),
        "against": _statistics(run),
        "gain_sign": 0 if gain is None or round(gain, 3) == 0 else math.copysign(1, gain),
        "score": words.number(score),
        "effective": words.number(
            final.get("effective_classes", last_value(record.epochs, "target_effective_classes"))
        ),
        "classes": len(record.class_names) or None,
        "chosen": chosen,
        "adabn": None if adabn is None else words.percent(adabn),
        "seconds": words.duration(final.get("seconds", last_value(record.epochs, "seconds"))),
        "epochs": f"{len(record.epochs)} of {record.manifest['recipe'].get('epochs', '?')}"
        + (" and a head finish" if "head_finish" in record.manifest and record.finished else ""),
        "missing": record.missing,
        "notes": [str(note) for note in record.manifest.get("notes") or []],
    }


def _charts(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    return [chart for name, title in (ACCURACIES | SCORES).items() if (chart := _chart(shown, name, title))]


def _terms(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    """A chart for each term of the objective."""
    names = dict.fromkeys(name for run in shown for row in run.record.epochs for name in row)
    terms = [name for name in names if name not in NO_TERMS and not name.startswith("weight_")]
    found = []
    for name in terms:
        title = {"loss": "Loss (sum of the terms)", "cross_entropy": "Cross-entropy on the source"}.get(name, name)
        if chart := _chart(shown, name, title):
            found.append(chart)
    return found


def _chart(shown: Sequence[Shown], name: str, title: str) -> dict[str, Any] | None:
    series = []
    for run in shown:
        rows = [row for row in run.record.epochs if _finite(row.get(name)) and _finite(row.get("epoch"))]
        if rows:
            epochs, values = [float(row["epoch"]) for row in rows], [float(row[name]) for row in rows]
            series.append(Series(run.label, run.style, epochs, values))
    if not series:
        return None
    return {"title": title, "svg": line_chart(title, series, as_percent=name in ACCURACIES)}


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _shift(shown: Sequence[Shown]) -> dict[str, Any] | None:
    measured = [(run, measure_shift(run.record.kept)) for run in shown if run.record.kept is not None]
    if not measured:
        return None
    charts = []
    for name, title in DISTANCES.items():
        rows = [Change(run.label, run.style, shift.before[name], shift.after[name]) for run, shift in measured]
        numbers = [(row.label, row.style, words.number(row.before), words.number(row.after)) for row in rows]
        charts.append({"title": title, "svg": shift_chart(title, rows), "rows": numbers})
    return {
        "charts": charts,
        "n": [max(shift.n[side] for _, shift in measured) for side in (0, 1)],
        "alike": len({shift.n for _, shift in measured}) == 1,
        "by_labels": any(shift.by_labels for _, shift in measured),
        "by_predictions": [run.label for run, shift in measured if not shift.by_labels],
        "own": [run.label for run, _ in measured if run.record.kept and run.record.kept.batchnorm == "own"],
    }


def _samples(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    n = PICTURES if len(shown) <= 3 else PICTURES // 2
    found = []
    for run in shown:
        kept = run.record.kept
        if kept is not None:
            target = kept.target
            found.append(
                {
                    "label": run.label,
                    "style": run.style,
                    "hardest": hardest(kept, n),
                    "uncertain": least_certain(kept, n),
                    "labelled": target.labels is not None,
                    "alike": ALIKE,
                    "tiny": target.side <= TINY,
                    "of": f"{words.count(len(target))} of {words.count(target.total)}",
                    "all": len(target) == target.total,
                }
            )
    return found


def _labelled(record: RunRecord) -> bool:
    return record.kept is not None and record.kept.target.labels is not None


def _calibration(run: Shown) -> dict[str, Any]:
    assert run.record.kept is not None
    target = run.record.kept.target
    result = reliability(target.confidence.numpy(), (target.labels == target.prediction).numpy())  # type: ignore[union-attr]
    over = result.overconfidence
    tendency = "neither too sure nor too careful on the whole"
    if abs(over) >= 0.005:
        tendency = f"{'surer' if over > 0 else 'less sure'} than right by {abs(100 * over):.1f} points on the whole"
    return {
        "label": run.label,
        "style": run.style,
        "svg": reliability_chart(run.label, result),
        "ece": words.percent(result.ece),
        "tendency": tendency,
        "n": words.count(len(target)),
    }
