"""Recipes: what a YAML file may say, what is refused, and what an override changes."""

import math
from dataclasses import fields

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bures.methods import method_names, method_options
from bures.training import Recipe, load_recipe, recipe_names
from bures.training._recipe_files import recipe_content


def written(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_library_loads(name):
    recipe = load_recipe(name)
    assert recipe.method in method_names()
    assert set(recipe.options) <= {option for method in method_names() for option in method_options(method)}
    assert recipe.build_method().name == recipe.method


def test_the_papers_two_protocols_are_there():
    text, code = load_recipe("paper-text"), load_recipe("paper-code")
    assert (text.optimiser, text.nesterov, text.momentum, text.schedule) == ("sgd", True, 0.9, "inverse")
    assert text.options == {"entropy": 0.5, "weight": 1.0, "eps": 0.01, "label_shift": False}
    assert code.options["label_shift"] is False
    assert text.evaluation_batchnorm == code.evaluation_batchnorm == "training"
    assert (code.optimiser, code.schedule, code.lr) == ("adam", "constant", 3e-4)
    assert (code.options["start"], code.options["entropy_start"]) == (5, 10)


def test_a_file_names_what_differs_from_the_defaults(tmp_path):
    recipe = load_recipe(written(tmp_path, "method: ckw\nepochs: 3\noptions: {entropy: 0.1}\n"))
    assert recipe == Recipe(method="ckw", epochs=3, options={"entropy": 0.1})
    assert load_recipe(written(tmp_path, "")) == Recipe()


def test_a_file_changes_a_recipe_that_it_is_based_on(tmp_path):
    (tmp_path / "base.yaml").write_text("based_on: paper-code\nepochs: 3\noptions: {weight: 2.0, ramp: 1.0}\n")
    path = written(tmp_path, "based_on: base.yaml\noptions: {ramp: 0.5}\n")
    code = load_recipe("paper-code")
    assert load_recipe(path) == code.override({"epochs": 3, "options.weight": 2.0, "options.ramp": 0.5})
    assert load_recipe("paper-code") == code
    assert recipe_content(path, library=False) == {"epochs": 3, "options": {"weight": 2.0, "ramp": 0.5}}
    assert load_recipe(written(tmp_path, "based_on: null\n")) == Recipe()


def test_a_path_goes_where_the_system_lets_it_go(tmp_path):
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "far" / "recipe.yaml").write_text("based_on: inner/../base.yaml\nepochs: 3\n")
    (tmp_path / "far" / "base.yaml").write_text("batch_size: 8\n")
    (tmp_path / "link").symlink_to(tmp_path / "far" / "inner", target_is_directory=True)
    assert load_recipe(tmp_path / "link" / ".." / "recipe.yaml") == Recipe(batch_size=8, epochs=3)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("based_on: 3", ValueError, "based_on=3 is no text; accepted is the name of a recipe"),
        ("based_on: paper", ValueError, "recipe.yaml: based_on: recipe='paper' is unknown; accepted are .*paper-text"),
        ("based_on: none.yaml", FileNotFoundError, "recipe.yaml: based_on: recipe='.*none.yaml' is not a file"),
        ("based_on: ./recipe.yaml", ValueError, "leads back to itself; accepted is a recipe not based on this one"),
        ("based_on: round.yaml", ValueError, "based_on: .*round.yaml: based_on='.*recipe.yaml' leads back to itself"),
        ("based_on: wrong.yaml", ValueError, "recipe.yaml: based_on: .*wrong.yaml: a recipe has no field 'rate'"),
    ],
)
def test_what_is_wrong_with_a_base_is_named_with_the_file_that_names_it(text, kind, message, tmp_path):
    (tmp_path / "round.yaml").write_text("based_on: recipe.yaml")
    (tmp_path / "wrong.yaml").write_text("rate: 1")
    with pytest.raises(kind, match=message):
        load_recipe(written(tmp_path, text))


def test_numbers_that_yaml_takes_for_text_are_numbers(tmp_path):
    text = "lr: 1e-3\nweight_decay: 5e-4\nbatch_size: '64'\noptions: {weight: 1e-1, eps: 1e-2}\n"
    assert isinstance(yaml.safe_load(text)["lr"], str)
    recipe = load_recipe(written(tmp_path, text))
    assert (recipe.lr, recipe.weight_decay, recipe.batch_size) == (1e-3, 5e-4, 64)
    assert recipe.options == {"weight": 0.1, "eps": 0.01}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate: 1", r"has no field 'learning_rate'; accepted are .*\blr\b"),
        ("- lr\n- 1", "holds a list; accepted are fields"),
        ("just words", "holds a str"),
        ("1: 2", "holds a dict; accepted are fields"),
        ("lr: [1", "is no valid YAML"),
        (b"\xff\xfe\x00 method", "is no text in UTF-8|is no valid YAML"),
        (b"method: caf\xe9", "is no text in UTF-8"),
        ("lr: fast", "lr='fast' is no number; accepted is float"),
        ("lr: true", "lr=True is no number"),
        ("lr: .inf", "lr=inf is no number"),
        ("lr: .nan", "lr=nan is out of range"),
        ("lr: 1" + 400 * "0", "is no number"),
        ("lr: 0", "lr=0.0 is out of range; accepted is a positive number"),
        ("lr: null", "lr=None is no number"),
        ("epochs: 2.5", "epochs=2.5 is not whole"),
        ("epochs: .inf", "epochs=inf is no number"),
        ("epochs: .nan", "epochs=nan is not whole"),
        ("epochs: 0", "epochs=0 is out of range"),
        ("epoch: middle", "epoch='middle' is unknown; accepted are 'shorter', 'longer' and a number of steps"),
        ("epoch: true", "epoch=True is unknown"),
        ("epoch: 0", "epoch=0 is out of range"),
        ("batch_size: 1", "batch_size=1 is out of range; at least two samples"),
        ("class_balanced: 1", "class_balanced=1 is no truth value; accepted is true or false"),
        ("network: 50", "network=50 is no text"),
        ("optimiser: lbfgs", "optimiser='lbfgs' is unknown; accepted are adam, adamw, sgd"),
        ("precision: 16-mixed", "precision='16-mixed' is unknown"),
        ("augment: mixup", "augment='mixup' is unknown; accepted are none, flip, crop, crop-colour, affine"),
        ("label_smoothing: 1", "label_smoothing=1.0 is out of range"),
        ("gradient_clip: 0", "gradient_clip=0.0 is out of range"),
        ("queue_predictions: true", "queue=0 keeps none; leave it out, or choose the length of the queue"),
        ("queue_full_gradient: true", "queue_full_gradient=True asks for the full gradient of a queue but queue=0"),
        ("weight_decay: -1", "weight_decay=-1.0 is out of range"),
        ("momentum: .nan", "momentum=nan is out of range"),
        ("seed: -1", "seed=-1 is out of range"),
        ("seed: 4294967296", "seed=4294967296 is out of range"),
        ("image_size: 0", "image_size=0 is out of range"),
        ("method: dann2", "method='dann2' is unknown; accepted are"),
        ("method: 3", "method=3 is no text"),
        ("options: 3", "options=3 is no mapping"),
        ("options: {lamda: 1}", "no method has an option 'lamda'; accepted are"),
        ("options: {1: 1}", "no method has an option 1"),
        ("options: {weight: heavy}", "options={'weight': 'heavy'} does not fit method 'ckb'"),
        ("options: {weight: -1}", "is out of range"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(text, message, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.mkdir ['{}']", "!!python/name:os.mkdir", "!!python/module:os"]
)
def test_a_file_cannot_run_code(tag, tmp_path):
    trace = tmp_path / "trace"
    with pytest.raises(ValueError, match="is no valid YAML"):
        load_recipe(written(tmp_path, f"method: {tag.format(trace)}"))
    assert not trace.exists()


def test_unknown_names_and_missing_files(tmp_path):
    with pytest.raises(ValueError, match=r"recipe='paper' is unknown; accepted are .*paper-text.* end in .yaml"):
        load_recipe("paper")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        load_recipe(tmp_path / "none.yaml")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        load_recipe(tmp_path / "..yaml")


recipes = st.builds(
    Recipe,
    method=st.just("ckb"),
    options=st.fixed_dictionaries({}, optional={"weight": st.floats(0, 1e300), "pseudo_labels": st.just("hard")}),
    lr=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    label_smoothing=st.floats(0, 1, exclude_max=True),
    epoch=st.sampled_from(["shorter", "longer"]) | st.integers(1, 10**6),
    weights=st.none() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])),
    network=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])),
    gradient_clip=st.none() | st.floats(1e-300, 1e300),
    nesterov=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@given(recipes)
def test_a_recipe_is_read_as_it_was_written(tmp_path_factory, recipe):
    path = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    assert load_recipe(recipe.save(path)) == recipe


def test_to_dict_gives_plain_values_of_all_fields():
    content = Recipe(options={"weight": 2.0}).to_dict()
    assert set(content) == {field.name for field in fields(Recipe)}
    assert yaml.safe_load(yaml.safe_dump(content)) == content


def test_an_override_changes_what_it_names():
    recipe = Recipe(method="ckb", options={"entropy": 0.1, "eps": 0.5}, lr=0.2)
    assert recipe.override({"lr": "3e-4", "options.weight": "2"}) == Recipe(
        method="ckb", options={"entropy": 0.1, "eps": 0.5, "weight": 2}, lr=3e-4
    )
    assert recipe.override({"options": {"weight": 3}}).options == {"weight": 3}
    assert recipe.lr == 0.2
    assert recipe.override({}) == recipe


def test_a_method_takes_those_of_the_options_that_it_has():
    recipe = Recipe(method="ckb", options={"entropy": 0.1, "weight": 3.0, "means": 5.0})
    weights = {
        name: {term.name: term.schedule.value for term in recipe.override({"method": name}).build_method().terms}
        for name in ("source", "entropy", "ckb", "ckw")
    }
    assert weights["source"] == {}
    assert weights["entropy"] == {"entropy": 0.1}
    assert weights["ckb"] == {"entropy": 0.1, "ckb": 3.0}
    assert weights["ckw"] == {"entropy": 0.1, "ckb": 3.0, "means": 15.0}
    changed = recipe.override({"method": "entropy", "options.entropy": 0.7}).build_method()
    assert changed.terms[0].schedule.value == 0.7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 1}, "a recipe has no field 'learning_rate'; accepted are"),
        ({"options.lamda": 1}, "method 'ckb' has no option 'lamda'"),
        ({"options.": 1}, "a recipe has no field 'options.'"),
        ({"method": "source", "options.weight": 1}, "method 'source' has no option 'weight'"),
        ({"method": "dann2"}, "method='dann2' is unknown"),
        ({"epochs": "many"}, "epochs='many' is no number"),
        ({"options": "x"}, r"^options='x' is no mapping; accepted are names and values$"),
        ({"options": None, "options.entropy": 0.1}, r"^options=None is no mapping"),
    ],
)
def test_a_wrong_override_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe().override(changes)


def test_a_recipe_cannot_be_changed_behind_its_back():
    options = {"weight": 1.0}
    recipe = Recipe(options=options)
    options["weight"] = math.inf
    assert recipe.options == {"weight": 1.0}
    with pytest.raises(AttributeError):
        recipe.lr = 1.0
