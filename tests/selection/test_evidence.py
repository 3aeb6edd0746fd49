"""What validators may see: no place for target labels, every need declared, and bad arrays refused."""

import inspect
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bures.selection
from bures.selection import (
    Evidence,
    Validator,
    importance_weights,
    make_validator,
    negative_ckw,
    reverse_accuracy,
    validator_names,
)

P = np.array([[0.6, 0.4], [0.1, 0.9], [0.5, 0.5]])


def test_evidence_has_no_place_for_target_labels():
    assert [item.name for item in fields(Evidence)] == [
        "target_probabilities", "target_features", "source_features", "source_labels",
        "validation_features", "validation_probabilities", "validation_labels",
    ]  # fmt: skip
    with pytest.raises(TypeError, match="target_labels"):
        Evidence(target_probabilities=P, target_labels=[0, 1, 1])
    evidence = Evidence(target_probabilities=P)
    with pytest.raises(FrozenInstanceError):
        evidence.source_labels = torch.zeros(3)
    with pytest.raises(AttributeError):  # not by the back door either
        object.__setattr__(evidence, "target_labels", torch.zeros(3))


def test_every_validator_reads_fields_of_the_evidence_and_nothing_else():
    known = {item.name for item in fields(Evidence)}
    for name in validator_names():
        validator = make_validator(name)
        assert set(validator.needs) <= known
        assert validator.summary
        assert not any("target_label" in need for need in validator.needs)
        parameters = inspect.signature(validator.function).parameters.values()
        assert {item.name for item in parameters if item.kind is not item.KEYWORD_ONLY} == set(validator.needs)
    assert [name for name in validator_names() if make_validator(name).needs_holdout] == ["dev", "iwcv", "source"]
    assert validator_names(holdout=False) == ["bnm", "ckb", "ckw", "entropy", "im", "reverse", "snd"]


@pytest.mark.parametrize("name", validator_names())
def test_a_missing_need_is_named_with_its_remedy(name):
    validator = make_validator(name)
    with pytest.raises(ValueError, match=f"validator '{name}' needs ") as caught:
        validator.score(Evidence())
    assert all(need in str(caught.value) for need in validator.needs)
    if validator.needs_holdout:
        assert "source_holdout=0.1" in str(caught.value)


def test_a_validator_of_ones_own_has_to_declare_what_there_is():
    own = Validator("sure", ("target_probabilities",), lambda target_probabilities: target_probabilities.max())
    assert own.score(Evidence(target_probabilities=P)) == 0.9
    with pytest.raises(ValueError, match="needs contains 'target_labels'; accepted are target_probabilities"):
        Validator("cheat", ("target_labels",), lambda target_labels: 1.0)


def test_numpy_and_torch_give_the_same_evidence():
    a, b = Evidence(target_probabilities=P), Evidence(target_probabilities=torch.as_tensor(P))
    assert torch.equal(a.target_probabilities, b.target_probabilities)
    half = Evidence(target_features=torch.ones(3, 2, dtype=torch.float16))
    assert half.target_features.dtype == torch.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"target_probabilities": P + 1}, r"3 of 3 rows that are not probabilities \(row 0: .* apply a softmax"),
        ({"target_probabilities": np.array([[0.5, 0.5], [-0.5, 1.5]])}, "rows that are not probabilities"),
        ({"target_probabilities": P[0]}, r"target_probabilities has shape \(2,\)"),
        ({"target_probabilities": P[:0]}, r"has shape \(0, 2\)"),
        ({"target_features": np.full((3, 2), np.nan)}, "target_features contains NaN or infinity in 3 of 3 rows"),
        ({"target_probabilities": P, "target_features": P[:2]}, "the target arrays have different numbers of rows"),
        ({"target_features": P, "source_features": np.eye(3)}, "the features have different numbers of columns"),
        ({"target_probabilities": P, "source_labels": [0, 1, 2]}, "source_labels contains class 2; .* 0 to 1"),
        ({"source_labels": [0.0, 1.0]}, "source_labels is a Tensor .* accepted are integers from 0 to K - 1"),
        ({"source_labels": [-1, 0]}, "source_labels contains class -1"),
        ({"source_labels": []}, "accepted are integers"),
    ],
)
def test_bad_arrays_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        Evidence(**arrays)


@pytest.mark.parametrize("name", bures.selection.__all__)
def test_every_public_name_is_documented(name):
    documented = getattr(bures.selection, name)
    if isinstance(documented, str):  # a constant
        return
    text = inspect.getdoc(documented)
    assert text.partition("\n")[0].endswith(".")
    assert name in dir(bures.selection)
    if inspect.isfunction(documented):
        assert ">>> " in text
        described = text.partition("Parameters\n")[2]
        for parameter in inspect.signature(documented).parameters:
            assert parameter in described or name in ("validator_names", "validator_options"), parameter


PAGE = Path(__file__).resolve().parents[2] / "docs" / "selection.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="not a source tree")
def test_the_page_names_every_validator_and_its_code_runs():
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == set(validator_names())
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})


def test_columns_of_data_frames_are_matched_by_name():
    rng = np.random.default_rng(0)
    names, y = ["a", "b", "c"], np.arange(60) % 2
    source, target = (pd.DataFrame(rng.normal(size=(60, 3)) * [1, 3, 9] + y[:, None], columns=names) for _ in "st")
    held_out, p = source[::2], 0.3 + 0.4 * np.eye(2)[y]
    turned = target[names[::-1]]
    weights = importance_weights(source, target, held_out)
    torch.testing.assert_close(importance_weights(source, turned, held_out[["b", "a", "c"]]), weights)
    for target_given in (target, turned):
        evidence = Evidence(
            target_probabilities=p,
            target_features=target_given,
            source_features=source,
            source_labels=y,
            validation_features=held_out,
            validation_probabilities=p[::2],
            validation_labels=y[::2],
        )
        # The first of the tables, here those of the target, gives the order.
        order = [list(target_given).index(name) for name in names]
        torch.testing.assert_close(evidence.source_features[:, order], torch.tensor(source.to_numpy()))
        torch.testing.assert_close(evidence.validation_features[:, order], torch.tensor(held_out.to_numpy()))
    for score in (negative_ckw, reverse_accuracy):
        assert score(source, y, turned, p) == pytest.approx(score(source, y, target, p))
    with pytest.raises(ValueError, match="target_features lacks the column 'a' and has the unexpected column 'z'"):
        importance_weights(source, target.rename(columns={"a": "z"}), held_out)
