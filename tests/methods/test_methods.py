"""Methods: each is the objective its docstring says, term by term."""

import copy
import math
import pickle
import subprocess
import sys

import pytest
import torch
from small_batches import DEEP, random_batch, ready

import bures
from bures.methods import (
    Batch,
    ConditionalTerm,
    FeatureTerm,
    Method,
    Schedule,
    Term,
    _registry,
    make_method,
    method_info,
    method_names,
    method_options,
    register,
)

NAMES = [
    "bures",
    "ckb",
    "ckb+mmd",
    "ckb-no-entropy",
    "ckw",
    "class-means",
    "entropy",
    "im",
    "kernel-bures",
    "source",
    "source+adabn",
    "target",
]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    return Batch(draw(20, 6), draw(20, 3), torch.arange(20) % 3, draw(15, 6), draw(15, 3))


def expected_terms(batch):
    """Every term computed by the public functions, from probabilities."""
    z_s, _, y_s, z_t, logits_t = batch
    p_t = logits_t.softmax(1)
    mean = p_t.mean(0)
    shared = bures.ckw(z_s, y_s, z_t, p_t.detach()) - bures.ckb(z_s, y_s, z_t, p_t.detach())
    return {
        "entropy": -(p_t * p_t.log()).sum(1).mean(),
        "diversity": (mean * mean.log()).sum(),
        "ckb": bures.ckb(z_s, y_s, z_t, p_t.detach(), bandwidth="per-block"),
        "mmd": bures.mmd(torch.nn.functional.one_hot(y_s).double(), p_t),
        "means": shared,
        "bures": bures.bures(z_s, z_t),
        "kernel-bures": bures.kernel_bures(z_s, z_t, bandwidth="per-block"),
    }


def test_the_methods_of_the_package_are_known_by_name():
    assert set(NAMES) <= set(method_names())


@pytest.mark.parametrize("name", NAMES)
def test_every_term_is_what_the_public_function_gives(name, batch):
    options = {"ckw": {"bandwidth": "per-block"}, "ckb+mmd": {"label_shift": False}}.get(name, {})
    objective = make_method(name, **options)(batch, epoch=0.0)
    wanted = expected_terms(batch)
    for term, value in objective.values.items():
        torch.testing.assert_close(value, wanted[term], rtol=1e-9, atol=1e-12)
    total = sum((weight * wanted[term] for term, weight in objective.weights.items()), torch.zeros(()))
    torch.testing.assert_close(objective.total, total, check_dtype=False, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("source", set()),
        ("source+adabn", set()),
        ("target", set()),
        ("entropy", {"entropy"}),
        ("im", {"entropy", "diversity"}),
        ("ckb", {"entropy", "ckb"}),
        ("ckb-no-entropy", {"ckb"}),
        ("ckb+mmd", {"entropy", "ckb", "mmd"}),
        ("ckw", {"entropy", "ckb", "means"}),
        ("class-means", {"entropy", "means"}),
        ("bures", {"entropy", "bures"}),
        ("kernel-bures", {"entropy", "kernel-bures"}),
    ],
)
def test_a_method_has_the_terms_of_its_objective(name, terms, batch):
    method = make_method(name)
    assert set(method(batch, epoch=0.0).values) == terms
    assert method.needs_target == bool(terms)
    assert method.name == name


def test_defaults_are_those_of_the_papers_text(batch):
    assert make_method("ckb")(batch, 0.0).weights == {"entropy": 0.5, "ckb": 1.0}
    assert make_method("ckb+mmd")(batch, 0.0).weights == {"entropy": 0.5, "ckb": 1.0, "mmd": 1.0}
    assert method_options("ckb")["eps"] == 1e-2
    assert method_options("ckb")["bandwidth"] == "per-block"


def test_ckw_with_one_bandwidth_is_the_ckw_distance(batch):
    values = make_method("ckw")(batch, 0.0).values
    distance = bures.ckw(batch.z_s, batch.y_s, batch.z_t, batch.p_t.detach())
    torch.testing.assert_close(values["ckb"] + values["means"], distance)
    assert make_method("ckw", weight=2.0, means=5.0)(batch, 0.0).weights["means"] == 10.0


@pytest.mark.parametrize("name", ["ckb+mmd", "ckw", "im", "dann", "cdan+e"])
def test_weights_may_be_tensors_which_a_cuda_graph_reads_anew(name, batch):
    method = make_method(name)
    method.setup(6, 3)
    method.double()
    leaves = (batch.z_s, batch.z_t)
    plain, read = copy.deepcopy(method), copy.deepcopy(method)  # some keep frequencies of what they have seen
    weights = {term: 0.3 + i for i, term in enumerate(method.weights(0.0))}
    found = read.objective(batch, {term: torch.tensor(w, dtype=torch.float64) for term, w in weights.items()}).total
    expected = plain.objective(batch, weights).total
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    for one, other in zip(
        *(torch.autograd.grad(total, leaves, allow_unused=True) for total in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "capturable"), [("ckb", True), ("dann", True), ("bures", True), ("ckw-running", False)]
)
def test_methods_whose_terms_look_at_values_are_not_captured(name, capturable):
    assert make_method(name).capturable == capturable


def test_terms_of_others_are_not_captured_unless_they_say_so():
    class Foreign(Term):
        def forward(self, batch):
            return batch.z_s.mean()

    assert not Method("foreign", [Foreign("mean", Schedule(1.0))]).capturable
    assert not ConditionalTerm("median", Schedule(1.0), bures.CKBLoss(bandwidth="median")).capturable
    assert not ConditionalTerm("own", Schedule(1.0), torch.nn.Identity()).capturable


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("name", ["ckb", "ckb+mmd", "dsan", "dmp", "etd"])
@pytest.mark.filterwarnings("ignore:batches of 15 samples span all 6 features")
def test_labels_may_be_integers_of_any_width(name, dtype, batch):
    values = []
    for labels in (batch.y_s, batch.y_s.to(dtype)):
        torch.manual_seed(0)
        method = make_method(name)
        method.setup(6, 3)
        values.append(method(batch._replace(y_s=labels), epoch=1).total)
    assert torch.equal(*values)


WITH_TERMS = sorted({*DEEP, *NAMES, "ckw-running"} - {"source", "source+adabn", "target"})


@pytest.mark.parametrize("name", WITH_TERMS)
def test_under_autocast_the_value_is_that_of_full_precision(name):
    rounded = Batch(
        *(
            part.bfloat16() if part.is_floating_point() else part
            for part in random_batch(14, 12, 20, dtype=torch.float32)
        )
    )
    values = []
    for autocast in (False, True):
        parts = [part if autocast or not part.is_floating_point() else part.float() for part in rounded]
        method = ready(name, 20, 3, torch.float32)
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            total = method(Batch(*parts), 100.0).total
        total.backward()
        values.append(total)
    assert values[1].dtype == torch.float32
    torch.testing.assert_close(values[1], values[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", WITH_TERMS)
def test_in_evaluation_mode_a_method_learns_nothing(name):
    method = ready(name, 20, 3, torch.float32)
    method(random_batch(14, 12, 20, dtype=torch.float32), 100.0)
    kept = {key: value.clone() for key, value in method.state_dict().items()}
    method.eval()
    method(random_batch(14, 12, 20, seed=1, dtype=torch.float32), 100.0)
    assert all(torch.equal(value, kept[key]) for key, value in method.state_dict().items())


@pytest.mark.parametrize("name", ["ckb+mmd", "dmp", "ckw-running"])
def test_in_evaluation_mode_the_value_is_that_of_the_step_that_would_be_made(name):
    method, batch = ready(name, 20, 3), random_batch(14, 12, 20, seed=1)
    method(random_batch(14, 12, 20), 100.0)
    method.eval()
    watched = method(batch, 100.0).total
    torch.testing.assert_close(watched, method.train()(batch, 100.0).total)


@pytest.mark.parametrize("name", WITH_TERMS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda b: {"z_t": b.z_t[:0], "logits_t": b.logits_t[:0]},
            r"z_t has shape \(0, 6\); accepted is a row for each",
        ),
        (lambda b: {"z_s": b.z_s[:, :, None]}, r"z_s has shape \(20, 6, 1\); accepted is a row for each sample"),
        (lambda b: {"y_s": b.y_s[:-1]}, r"y_s has shape \(19,\) but z_s \(20, 6\); accepted is one label per sample"),
        (lambda b: {"z_t": b.z_t[:, :4]}, r"z_s has shape \(20, 6\) but z_t \(15, 4\); accepted are as many columns"),
        (lambda b: {"logits_s": b.logits_s[:, :2]}, r"logits_s has shape \(20, 2\) but logits_t \(15, 3\)"),
    ],
)
def test_a_batch_whose_parts_do_not_fit_together_is_refused(name, change, message, batch):
    with pytest.raises(ValueError, match=message):
        ready(name, 6, 3)(batch._replace(**change(batch)), 100.0)


def test_terms_are_not_computed_before_they_count(batch):
    method = make_method("ckb", start=5, entropy_start=10, ramp=10)
    assert method(batch, epoch=4.9).values == {}
    assert float(method(batch, epoch=4.9).total) == 0
    assert method(batch, epoch=10.0).weights == {"ckb": 0.5}
    assert method(batch, epoch=20.0).weights == {"ckb": 1.0, "entropy": 0.5}


def test_alignment_reaches_features_and_the_label_mmd_reaches_predictions(batch):
    objective = make_method("ckb+mmd")(batch, 0.0)
    to_features = torch.autograd.grad(objective.values["ckb"], [batch.z_s, batch.z_t], retain_graph=True)
    assert all(bool(gradient.abs().max() > 0) for gradient in to_features)
    (to_logits,) = torch.autograd.grad(objective.values["ckb"], batch.logits_t, allow_unused=True, retain_graph=True)
    assert to_logits is None
    (to_logits,) = torch.autograd.grad(objective.values["mmd"], batch.logits_t)
    assert float(to_logits.abs().max()) > 0


def test_entropy_is_finite_for_certain_predictions():
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    zeros = torch.zeros(1, 2)
    batch = Batch(zeros, logits, torch.zeros(1, dtype=torch.int64), zeros, logits)
    for name in ("entropy", "im"):
        total = make_method(name)(batch, 0.0).total
        (gradient,) = torch.autograd.grad(total, logits)
        assert math.isfinite(total.item())
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("name", NAMES)
def test_methods_can_be_copied_and_pickled(name, batch):
    method = make_method(name)
    value = method(batch, 0.0).total.item()
    for other in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert other(batch, 0.0).total.item() == pytest.approx(value, rel=1e-9)


def test_controls_say_what_the_trainer_has_to_do():
    assert make_method("source+adabn").adapts_batchnorm
    assert make_method("target").trains_on_target
    assert not make_method("ckb").adapts_batchnorm


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"method='dann2' is unknown; accepted are .*'ckb'"):
        make_method("dann2")
    with pytest.raises(ValueError, match=r"method 'ckb' has no option 'lamda'; accepted are: entropy, diversity"):
        make_method("ckb", lamda=1.0)
    with pytest.raises(ValueError, match=r"value=-1 is out of range"):
        make_method("ckb", weight=-1)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="'ckb' exists already"):
        register("ckb")(lambda: None)


def test_a_name_of_the_library_cannot_be_taken_before_its_methods_are_loaded():
    code = """
from bures.methods import Method, make_method, register
try:
    register("mcc")(lambda: Method("mcc"))
except ValueError as error:
    print(error)
print(make_method("mcc").terms[0].name, make_method("ckb").name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "a method named 'mcc' exists already (bures.methods.mcc); choose another name",
        "confusion ckb",
    ]


def test_a_method_that_is_defined_again_takes_the_place_of_its_earlier_version(monkeypatch):
    monkeypatch.setattr(_registry, "_FACTORIES", dict(_registry._FACTORIES))
    monkeypatch.setattr(_registry, "_INFOS", dict(_registry._INFOS))

    def define(summary, **options):
        def twice() -> Method:
            return Method("twice", **options)

        twice.__doc__ = summary
        register("twice")(twice)

    define("First.")
    define("Second.", adapts_batchnorm=True)
    assert method_info("twice").summary == "Second"
    assert make_method("twice").adapts_batchnorm


def test_terms_of_one_method_have_names_of_their_own(batch):
    weak, strong = (FeatureTerm("means", Schedule(weight), torch.nn.Identity()) for weight in (0.1, 10.0))
    with pytest.raises(ValueError, match=r"method 'two' has two terms named 'means'; their weights are told apart"):
        Method("two", [weak, strong])


@pytest.mark.parametrize("name", ["loss", "cross_entropy", "epoch", "consistency", "weight_ckb", "score_snd"])
def test_a_term_cannot_take_a_place_in_the_log_that_is_taken(name):
    with pytest.raises(ValueError, match=rf"method 'own' has a term named '{name}', which the log of a training has"):
        Method("own", [FeatureTerm(name, Schedule(1.0), torch.nn.Identity())])


def test_schedule_rises_evenly():
    assert [Schedule(4.0, 2, 4)(epoch) for epoch in (0, 2, 3, 6, 9)] == [0.0, 0.0, 1.0, 4.0, 4.0]
    assert Schedule(3.0)(0) == 3.0


def test_schedule_rises_as_a_sigmoid_over_the_training_or_over_epochs():
    whole = Schedule(2.0, ramp=None, shape="sigmoid")
    assert whole(7, progress=0.0) == 0.0
    assert whole(7, progress=0.3) == pytest.approx(2 * (2 / (1 + math.exp(-3)) - 1))
    assert whole(7) == pytest.approx(2.0, rel=1e-4)  # without a share of the training, its end
    epochs = Schedule(2.0, start=1, ramp=10, shape="sigmoid")
    assert epochs(4, progress=0.9) == pytest.approx(whole(0, progress=0.3))
    assert Schedule(4.0, start=5, ramp=None)(4, progress=0.5) == 0.0
    assert Schedule(4.0, start=5, ramp=None)(5, progress=0.5) == 2.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"value": 1.0, "ramp": -1.0}, r"ramp=-1.0 is out of range"),
        ({"value": 1.0, "shape": "cubic"}, r"shape='cubic' is unknown; accepted are 'linear', 'sigmoid'"),
    ],
)
def test_schedules_out_of_range_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**fields)


def test_what_a_method_matches_is_one_of_the_known_kinds():
    with pytest.raises(ValueError, match=r"matches='all' is unknown; accepted are 'nothing', 'marginal'"):
        register("new", matches="all")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ckb", {"weight": -1}, r"^method 'ckb' cannot be made with weight=-1: value=-1 is out of range"),
        ("ckb", {"entropy": 0.1, "ramp": math.nan}, r"^method 'ckb' cannot be made with entropy=0.1, ramp=nan: ramp="),
        ("ckb", {"bandwidth": "wide"}, r"cannot be made with bandwidth='wide': bandwidth='wide' is unknown"),
        ("dann", {"hidden": 0.5}, r"hidden=0.5 is not whole; accepted is a positive whole number$"),
        ("cdan", {"largest": 10.5}, "largest=10.5 is not whole"),
        ("cdan+e", {"random_features": 0.1}, "random_features=0.1 is not whole"),
        ("cycada", {"translator_width": 0.9}, "translator_width=0.9 is not whole"),
        ("cycada", {"translator_blocks": 1.5}, "translator_blocks=1.5 is not whole"),
    ],
)
def test_an_option_that_will_not_do_is_named_with_what_was_given(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_method(name, **options)


@pytest.mark.parametrize("option", ["diversity", "confusion"])
@pytest.mark.parametrize("name", ["ckb", "ckb+mmd", "ckw", "ckw-running", "class-means", "im"])
@pytest.mark.parametrize("value", [-0.5, math.nan])
def test_a_weight_that_is_none_is_refused_where_zero_leaves_the_term_out(name, option, value):
    with pytest.raises(ValueError, match=rf"{option}={value!r} is out of range; accepted are numbers from 0 up"):
        make_method(name, **{option: value})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ckb+mmd", {"label_shift": "no"}, r"label_shift='no' is no truth value; accepted are True and False"),
        ("ckb", {"diversity": "0.5"}, r": diversity='0.5' is not a number; accepted"),
        ("ckw", {"means": "1"}, r": means='1' is not a number; accepted"),
        ("kgot", {"means": None}, r": means=None is not a number; accepted"),
        ("dann", {"dropout": "0.1"}, r": dropout='0.1' is not a number; accepted"),
        ("cycada", {"cycle": None}, r": cycle=None is not a number; accepted"),
        ("cycada", {"classifier_share": None}, r": classifier_share=None is not a number; accepted"),
    ],
)
def test_an_option_of_another_kind_is_named(name, options, message):
    with pytest.raises(TypeError, match=message):
        make_method(name, **options)


def test_a_whole_number_may_come_with_a_point():
    assert make_method("dann", hidden=1e3).terms[0].hidden == 1000
