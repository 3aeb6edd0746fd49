"""What the campaigns have found, each by a case of its own, against a closed form or an independent computation."""

import io
import json
import zipfile
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import reference
import torch
from rich.console import Console

import bures
from bures import selection
from bures.cli._outcome import show
from bures.data import Domain, GaussianClasses, TensorSamples, load_domain
from bures.data._mat_check import check_mat
from bures.experiments import load_space, read_results
from bures.figures._ledgers import chosen_results, ledger_results
from bures.methods import Batch, Schedule, make_method
from bures.moments import read_chunks
from bures.report import read_runs, write_report
from bures.shift import shift_report
from bures.testing import out_of_fold_labels
from bures.training import Recipe, load_model
from bures.training._kept import read_kept, write_kept
from tests.fuzz.file_formats import KINDS, run_folder

RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(8, 3)), RNG.normal(size=(7, 3)) + 0.5
YS, YT = np.arange(8) % 2, np.arange(7) % 2
P2 = np.full((7, 2), 0.5)


def with_a_distant_sample(x, distance):
    x = x.copy()
    x[0] = distance
    return x


# ------------------------------------------------------------------------------------------------------------ kernels


def mmd_by_differences(xs, xt, sigma2):
    def mean(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / sigma2).mean()

    return mean(xs, xs) + mean(xt, xt) - 2 * mean(xs, xt)


@pytest.mark.parametrize("distance", [1e6, 1e9, 1e12])
def test_one_distant_sample_costs_the_others_no_digits(distance):
    xs = with_a_distant_sample(XS, distance)
    assert bures.mmd(xs, XT, bandwidth=2.0) == pytest.approx(mmd_by_differences(xs, XT, 2.0), rel=1e-12)
    pairs = np.concatenate([xs, XT])
    gaps = ((pairs[:, None] - pairs[None]) ** 2).sum(-1)
    median = np.median(gaps[np.triu_indices(len(pairs), 1)])
    assert bures.mmd(xs, XT, bandwidth="median") == pytest.approx(mmd_by_differences(xs, XT, median), rel=1e-9)


@pytest.mark.parametrize("loss", [bures.CKBLoss(bandwidth=2.0), bures.CKWLoss(bandwidth=2.0)], ids=["ckb", "ckw"])
def test_a_distant_sample_in_single_precision_gives_the_value_of_double(loss):
    xs = with_a_distant_sample(XS[:7], 7e5)
    single, double = (
        loss(torch.tensor(xs, dtype=dtype), torch.tensor(YS[:7]), torch.tensor(XT, dtype=dtype), torch.tensor(P2))
        for dtype in (torch.float32, torch.float64)
    )
    assert float(single) == pytest.approx(float(double), abs=1e-4)
    assert float(double) > 0


def test_ckb_beside_a_distant_sample_is_that_of_the_reference():
    xs = with_a_distant_sample(XS, 1e9)
    options = {"bandwidth": 2.0, "label_bandwidth": 0.9, "eps": 1e-2}
    wanted, _ = reference.ckb(xs, np.eye(2)[YS], XT, np.eye(2)[YT], **options)
    assert bures.ckb(xs, YS, XT, YT, **options) == pytest.approx(wanted, rel=1e-8)


def test_a_narrow_spread_about_a_small_offset_is_seen():
    """Float32 samples near 1e-4 that differ in the fifth digit: the distance of a sample to its scaled self."""
    spread = 1e-4 + 1e-8 * RNG.normal(size=(7, 3))
    xs, xt = (torch.tensor(x, dtype=torch.float32) for x in (spread, 2 * spread - 1e-4))
    y, p = torch.tensor(YT), torch.tensor(P2)
    single, double = (
        float(bures.CKBLoss()(a.to(t), y, b.to(t), p)) for t in (torch.float32, torch.float64) for a, b in [(xs, xt)]
    )
    assert single == pytest.approx(double, rel=1e-2, abs=1e-3)
    assert double > 1e-3


def test_the_gradient_of_constant_domains_is_zero():
    z_s, z_t = torch.full((3, 1), 0.1257, requires_grad=True), torch.full((3, 1), 0.1049, requires_grad=True)
    bures.CKBLoss()(z_s, torch.zeros(3, dtype=torch.int64), z_t, torch.ones(3, 1)).backward()
    assert torch.equal(z_s.grad, torch.zeros(3, 1))
    assert torch.equal(z_t.grad, torch.zeros(3, 1))


def test_features_of_a_map_have_norms_up_to_one_beside_a_distant_sample():
    xs = with_a_distant_sample(XS, -5e7)
    phi = bures.NystroemMap.fit(xs, XT, n_landmarks=6, bandwidth="median")
    assert float(np.square(phi(xs)).sum(axis=1).max()) <= 1 + 1e-9


@pytest.mark.parametrize("call", [
    lambda a, b: bures.bures(a, b),
    lambda a, b: bures.mmd(a, b, kernel="linear"),
    lambda a, b: bures.kernel_bures(a, b, kernel="linear"),
])  # fmt: skip
def test_squares_beyond_the_range_of_the_dtype_are_refused(call):
    xs, xt = (torch.tensor(1e25 * x, dtype=torch.float32) for x in (XS, XT))
    with pytest.raises(ValueError, match=r"xs and xt have entries of size .* beyond the range of torch.float32"):
        call(xs, xt)
    assert np.isfinite(float(call(xs.double(), xt.double())))
    with pytest.raises(ValueError, match=r"xs and xt have entries of size .* beyond the range of torch.float64"):
        call(1e160 * XS, 1e160 * XT)


# ------------------------------------------------------------------------------------------------- arrays and labels


def test_one_row_with_negative_strides_is_read():
    x = XS[:1][::-1]
    assert x.strides[0] < 0
    assert bures.kernel_bures(x, XT) == bures.kernel_bures(x.copy(), XT)


def test_labels_without_columns_are_refused():
    with pytest.raises(ValueError, match=r"yt has shape \(7, 0\); accepted is at least one column"):
        bures.ckb(XS, YS, XT, np.empty((7, 0)))


def test_auto_eps_under_a_very_wide_label_kernel_is_that_of_no_conditioning():
    ps, pt = RNG.dirichlet(np.ones(2), size=8), RNG.dirichlet(np.ones(2), size=7)
    value = bures.ckb(XS, ps, XT, pt, label_bandwidth=1e30, eps="auto")
    assert value == pytest.approx(bures.kernel_bures(XS, XT), rel=1e-6)


@pytest.mark.parametrize("seed", [None, -1, 0.5, "a", True])
@pytest.mark.parametrize("call", [
    lambda seed: bures.explain(XS, YS, XT, YT, n_permutations=1, n_bootstrap=1, seed=seed),
    lambda seed: bures.NystroemMap.fit(XS, n_landmarks=2, seed=seed),
    lambda seed: bures.RandomFourierMap.fit(XS, n_features=2, seed=seed),
    lambda seed: out_of_fold_labels(XS, YS, XT, seed=seed),
    lambda seed: bures.data.drifting_class(5, seed=seed),
])  # fmt: skip
def test_a_seed_that_is_none_is_refused_by_name(call, seed):
    with pytest.raises(ValueError, match=f"seed={seed!r} is not accepted"):
        call(seed)


def test_classes_that_cannot_be_ordered_are_refused():
    with pytest.raises(TypeError, match="ys holds objects"):
        out_of_fold_labels(XS, np.array([object()] * 8), XT)


# ------------------------------------------------------------------------------------------------ losses and methods


@pytest.mark.parametrize(("change", "message"), [
    ({"z_s": torch.full((4, 2), torch.nan)}, "z_s contains NaN"),
    ({"y_s": torch.tensor([0, 1, 2, 9])}, "y_s contains class 9"),
    ({"y_s": torch.tensor([0, 1])}, "y_s has 2 labels"),
    ({"p_t": torch.full((3, 3), 0.5)}, "p_t has 3 of 3 rows that are not probabilities"),
])  # fmt: skip
def test_a_refused_batch_leaves_running_moments_as_they_were(change, message):
    loss = bures.RunningCKWLoss(2, 3, n_waves=4)
    batch = {"z_s": torch.randn(4, 2), "y_s": torch.arange(4) % 3, "z_t": torch.randn(3, 2), "p_t": torch.eye(3)}
    loss(**batch)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        loss(**batch | change)
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


@pytest.mark.parametrize("wrong", [{"ramp": "long"}, {"value": None}, {"start": True}])
def test_a_schedule_of_what_is_no_number_is_refused_by_name(wrong):
    with pytest.raises(TypeError, match=f"{next(iter(wrong))}=.* is not a number"):
        Schedule(**{"value": 1.0, **wrong})


def test_an_option_that_a_method_cannot_take_is_named():
    with pytest.raises(TypeError, match=r"method 'cdan' cannot be made with dropout=None"):
        make_method("cdan", dropout=None)


# --------------------------------------------------------------------------------------------------------- selection


@pytest.mark.parametrize(("call", "name"), [
    (lambda: selection.source_accuracy(np.eye(3), [0, 1]), "validation_labels"),
    (lambda: selection.source_accuracy(np.eye(3)[:1], [0, 1]), "validation_labels"),
    (lambda: selection.negative_iwcv(XS, XT, XS[:3], np.eye(3), [0, 1]), "validation_labels"),
    (lambda: selection.reverse_accuracy(XS, YS[:3], XT, P2), "source_labels"),
    (lambda: selection.reverse_accuracy(XS, YS, XT[:, :2], P2), "target_features"),
    (lambda: selection.information(np.array([[2.0, -1.0]])), "target_probabilities"),
    (lambda: selection.information([["a"]]), "target_probabilities"),
    (lambda: selection.weighted_risk([np.nan, 1.0], [1.0, 1.0]), "losses"),
    (lambda: selection.controlled_risk(["a"], [1.0]), "losses"),
    (lambda: selection.study(["nonsense"]), "results"),
    (lambda: selection.study([{"epochs": [1, 2]}]), "results"),
])  # fmt: skip
def test_what_validators_cannot_use_is_refused_by_name(call, name):
    with pytest.raises((TypeError, ValueError), match=name):
        call()


# -------------------------------------------------------------------------------------------------- data and reports


@pytest.mark.parametrize(("change", "message"), [
    ({"frequencies": "nonsense"}, "frequencies could not be read"),
    ({"means": [[np.nan]]}, "means contains NaN"),
    ({"means": 1.0}, "means"),
])  # fmt: skip
def test_a_population_of_what_is_no_number_is_refused(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        GaussianClasses(**{"frequencies": [1.0], "means": [[0.0]], "covariances": [[[1.0]]], **change})


@pytest.mark.parametrize("options", [{"n": -1}, {"n": 2.5}, {"drift": "far"}, {"drift": np.inf}])
def test_a_synthetic_shift_of_what_is_no_number_is_refused(options):
    with pytest.raises(TypeError if options == {"n": 2.5} else ValueError, match=next(iter(options))):
        bures.data.drifting_class(**options)


def test_null_samples_that_differ_by_rounding_alone_are_drawn():
    """Of two equal source samples and two target samples, all arrangements give one statistic up to rounding."""
    xs, xt, y = np.full((2, 1), 0.64), np.array([[104.9], [-535.7]]), np.zeros(2, dtype=int)
    report = shift_report(xs, y, xt, y, n_permutations=9, n_bootstrap=0, level=0.5)
    assert "<html" in report.to_html()
    report.marginal.plot()
    plt.close("all")


def test_a_few_large_values_among_equal_ones_make_few_bins():
    test = bures.marginal_test(XS, XT, n_permutations=19)
    null = np.where(np.arange(19) < 17, 1e-17 * np.arange(19), 1.0)
    axes = type(test)(**{**vars(test), "null": null}).plot()
    assert len(axes.patches) <= 60
    plt.close("all")


def test_a_title_in_brackets_does_not_cost_the_table_of_a_training():
    domain = Domain("digits[/b]", TensorSamples(torch.zeros(2, 1)), ("a",))
    run = SimpleNamespace(manifest={"recipe": {"method": "ckb"}, "notes": []})
    comparison = SimpleNamespace(runs={"ckb": run}, baseline=None, rows=list)
    console = Console(width=200, file=io.StringIO())
    show(console, comparison, domain, domain, None)
    assert "digits[/b]" in console.file.getvalue()


def test_a_cost_of_samples_that_coincide_has_the_gradient_zero():
    pytest.importorskip("ot")
    z_s, z_t = (torch.full((1, 1), 1e4, requires_grad=True) for _ in range(2))
    logits = torch.zeros(1, 2)
    make_method("etd").setup(1, 2)
    make_method("etd")(Batch(z_s, logits, torch.tensor([0]), z_t, logits), epoch=1.0).total.backward()
    assert float(z_s.grad) == float(z_t.grad) == 0


@pytest.mark.parametrize("rows", [np.eye(2)[YT].tolist(), list(np.eye(2)[YT]), tuple(map(tuple, np.eye(2)[YT]))])
def test_probabilities_in_lists_are_predictions_as_they_are_in_arrays(rows):
    given = bures.conditional_test(XS, np.eye(2)[YS], XT, rows, n_permutations=19, seed=0, conditioning="hard")
    arrays = bures.conditional_test(
        XS, np.eye(2)[YS], XT, np.array(rows), n_permutations=19, seed=0, conditioning="hard"
    )
    assert given.labels == arrays.labels == "predicted"
    assert given.p_value == arrays.p_value


@pytest.mark.parametrize("classifier", ["nonsense", 3, object])
def test_a_classifier_that_is_none_is_named(classifier):
    with pytest.raises(TypeError, match=r"classifier=.* is no classifier"):
        selection.reverse_accuracy(XS, YS, XT, np.eye(2)[YT], classifier=classifier)


# ------------------------------------------------------------------------------------------------------------- files


def test_a_header_of_a_npy_file_that_is_cut_names_the_file(tmp_path):
    path = KINDS["npy"].build(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"(12, 3), }", b"(12,      "))
    with pytest.raises(ValueError, match=r"a\.npy cannot be read as \.npy"):
        load_domain(str(path))
    with pytest.raises(ValueError, match=r"a\.npy cannot be read as \.npy"):
        list(read_chunks(path, np.zeros(12)))


@pytest.mark.parametrize(("at", "value"), [(176, 0), (176, 14), (177, 2), (154, 2), (136, 22), (124, 1)])
def test_a_matlab_file_with_types_that_are_none_does_not_end_the_process(tmp_path, at, value):
    """SciPy would look up the type of the numbers (at 176) outside of its table."""
    path = KINDS["mat"].build(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] = value
    if at == 124:  # another minor version: the file is looked at all the same
        content[176] = 0
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.mat cannot be read as \.mat"):
        load_domain(str(path))


def test_matlab_files_of_many_kinds_are_walked_to_their_end(tmp_path):
    import scipy.sparse
    from scipy.io import savemat

    content = {
        "x": XS, "z": XS + 1j, "names": np.array(["cat", "dogs"], dtype=object), "text": "words",
        "empty": np.empty((0, 3)),
        "flag": np.array([True]), "fields": {"a": 1.0, "b": {"c": "d"}}, "sparse": scipy.sparse.csc_matrix(np.eye(3)),
    }  # fmt: skip
    for compressed in (False, True):
        savemat(tmp_path / "a.mat", content, do_compression=compressed)
        check_mat(tmp_path / "a.mat")
    savemat(tmp_path / "a.mat", {"x": XS}, format="4")
    check_mat(tmp_path / "a.mat")


def test_a_damaged_page_of_a_parquet_file_names_the_file(tmp_path):
    path = KINDS["parquet"].build(tmp_path)
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read as \.parquet"):
        load_domain(str(path))
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read as \.parquet"):
        list(read_chunks(path))


@pytest.mark.parametrize(("field", "value"), [
    ("seed", "three"), ("final", 3), ("changes", []), ("task", None), ("epochs", {"target_accuracy": ["high"]}),
    ("epochs", [1]), ("schema", "2"), ("method", "\ud800"),
])  # fmt: skip
def test_a_line_of_a_ledger_that_no_table_can_use_is_named(tmp_path, field, value):
    path = KINDS["ledger"].build(tmp_path)
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([*rest, json.dumps(json.loads(first) | {field: value})]) + "\n")
    with pytest.raises(ValueError, match=rf"digits\.jsonl is damaged in line {len(rest) + 1}: .*{field}"):
        read_results(path)


def test_a_result_without_an_accuracy_or_a_schema_costs_the_others_nothing(tmp_path):
    path = KINDS["ledger"].build(tmp_path)
    first, *rest = path.read_text().splitlines()
    unfinished = json.loads(first) | {"final": None, "recipe_name": None, "schema": None}
    path.write_text("\n".join([*rest, json.dumps(unfinished)]) + "\n")
    assert len(chosen_results(ledger_results(path))) == len(rest)


@pytest.mark.parametrize("end", ["low", "high"])
def test_a_range_without_an_end_names_the_file(tmp_path, end):
    ends = {"low": "0.1", "high": "0.2"} | {end: "null"}
    (tmp_path / "a.yaml").write_text(f"lr: {{low: {ends['low']}, high: {ends['high']}}}\n")
    with pytest.raises(ValueError, match=rf"a\.yaml: search space: {end} of lr is nothing"):
        load_space(tmp_path / "a.yaml", Recipe())


def test_a_part_of_a_npz_file_that_is_no_array_names_the_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        with archive.open("x.npy", "w") as stream:
            np.save(stream, XS)
        archive.writestr("y.npy", b"no array")
    with pytest.raises(ValueError, match=r"a\.npz cannot be read as \.npz: a part of it is no array"):
        load_domain(str(tmp_path / "a.npz"))


def test_features_that_are_no_numbers_do_not_cost_the_report(tmp_path):
    run = run_folder(tmp_path)
    kept = read_kept(run.samples)
    kept.target.features[0] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    write_kept(run.samples, kept)
    assert write_report([run.path], tmp_path / "report.html", tsne=0).stat().st_size > 10_000


@pytest.mark.parametrize(("field", "value"), [
    ("epochs", [5]), ("hardware", []), ("notes", True), ("final", {"accuracy": "high"}), ("network", 1.5),
])  # fmt: skip
def test_a_manifest_that_no_report_can_use_is_named(tmp_path, field, value):
    run = run_folder(tmp_path)
    run.manifest.write_text(json.dumps(json.loads(run.manifest.read_text()) | {field: value}))
    with pytest.raises(ValueError, match=rf"manifest\.json is damaged: {field}"):
        write_report([run.path], tmp_path / "report.html", tsne=0)


def test_a_log_that_is_no_text_is_left_out_with_a_note(tmp_path):
    path = KINDS["log"].build(tmp_path)
    path.write_bytes(b"epoch,loss\n1,\xff\xfe\n")
    assert any("log.csv cannot be read" in note for note in read_runs([path.parent])[0].missing)


def test_a_name_of_half_a_character_is_written(tmp_path):
    run = run_folder(tmp_path)
    run.manifest.write_text(json.dumps(json.loads(run.manifest.read_text()) | {"command": "\ud800"}))
    assert "\\ud800" in write_report([run.path], tmp_path / "report.html", tsne=0).read_text()


@pytest.mark.parametrize("change", [b'"hidden\\": []', b'"hidden\\": 0', b'"hidden\\": 99999999999999999999'])
def test_a_model_of_a_network_that_cannot_be_built_is_named(tmp_path, change):
    import struct

    path = KINDS["model"].build(tmp_path)
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = content[8 : 8 + length].replace(b'"hidden\\": 4', change)
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + length :])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: the network"):
        load_model(path)


def test_moments_without_a_setting_are_named(tmp_path):
    path = KINDS["moments"].build(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"decay\\"', b'"DECAY\\"'))
    with pytest.raises(ValueError, match=r"moments\.safetensors' is damaged: 'decay' is missing"):
        KINDS["moments"].read(path)
