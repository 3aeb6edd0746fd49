"""The figures themselves: what is drawn is what was computed, in every style, and files are whole or absent."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from small_runs import adapt, pictures

import bures
from bures.data import Domain, TensorSamples
from bures.experiments._feature_figure import some_of_each, tsne_plane
from bures.figures import (
    a_distance,
    ablation_figure,
    ablation_table,
    alignment_figure,
    alignment_states,
    convergence_figure,
    convergence_table,
    draw_figure,
    feature_state,
    hyperparameter_figure,
    hyperparameter_grid,
    network_blocks,
    network_figure,
    read_convergence,
    run_feature_state,
    run_results,
    save_figure,
    style_named,
    time_figure,
    time_table,
    training_curves,
    training_figure,
    tsne_figure,
    validator_figure,
    validator_table,
)
from bures.figures._style import STYLES
from bures.networks import build_network
from bures.training import Recipe, load_model

# Networks that made a few steps predict few classes.
pytestmark = pytest.mark.filterwarnings("ignore:predictions collapsed", "ignore:missing. class")

CONVERGENCE = Path(__file__).resolve().parents[2] / "results" / "convergence" / "convergence.json"


def run(method="ckb", task="a->b", seed=0, accuracy=0.5, *, entropy=0.05, weight=1.0, **rest):
    given = {"key": "", "task": task, "recipe_name": "r", "method": method, "seed": seed, "changes": {}}
    options = {"entropy": entropy, "weight": weight}
    return given | {"recipe": {"options": options}, "final": {"accuracy": accuracy}, **rest}


def texts(axes):
    return [text.get_text() for text in axes.texts]


def drawn(figure, style="light"):
    """The figure's pixels were asked for: what fails only when it is drawn fails here."""
    with style_named(style).applied():
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("style", STYLES)
def test_bars_of_the_ablation_have_the_heights_of_the_table(style):
    results = [run("ckb", "a->b", seed, value) for seed, value in enumerate((0.7, 0.8))]
    results += [run("bures", "a->b", 0, 0.6), run("source", "a->b", 0, 0.65)]
    table = ablation_table(results)
    (axes,) = drawn(ablation_figure(table, style=style), style).axes
    tops = {bar.get_x() + bar.get_width() / 2: bar.get_y() + bar.get_height() for bar in axes.patches}
    assert tops == {0.0: pytest.approx(75.0), 1.0: pytest.approx(60.0)}
    assert sum(text.strip() == "not run" for text in texts(axes)) == 5
    assert "75.0" in texts(axes)
    (error,) = [line for line in axes.collections if len(line.get_segments()) == 1]  # one seed has no deviation
    (low, high) = error.get_segments()[0][:, 1]
    assert (low, high) == (pytest.approx(75 - math.sqrt(50)), pytest.approx(75 + math.sqrt(50)))
    assert any(np.allclose(line.get_ydata(), 65.0) for line in axes.lines if len(line.get_ydata()) == 2)
    begins = axes.get_ylim()[0]
    assert begins == 0 or f"axis begins at {begins:g}" in axes.get_ylabel()


def test_the_dashed_line_of_the_ablation_runs_through_no_number():
    results = [run("ckb", "a->b", 0, 0.9), run("bures", "a->b", 0, 0.6), run("source", "a->b", 0, 0.61)]
    figure = drawn(ablation_figure(ablation_table(results)))
    (axes,) = figure.axes
    (line,) = {
        line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 2 and line.get_linestyle() == "--"
    }
    height = axes.transData.transform((0, line))[1]
    (number,) = [text for text in axes.texts if text.get_text() == "60.0"]
    assert number.get_window_extent().y0 > height


def test_many_tasks_are_shown_by_their_mean_alone():
    results = [run("ckb", f"a->{name}", 0, 0.5) for name in "bcdef"]
    (axes,) = drawn(ablation_figure(ablation_table(results))).axes
    assert axes.get_title() == "mean over 5 tasks"


@pytest.mark.parametrize("style", STYLES)
def test_missing_places_of_the_grid_are_drawn_as_missing(style):
    grid = hyperparameter_grid([run(accuracy=0.9), run(entropy=0.5, weight=10.0, accuracy=0.8)])
    flat, space = drawn(hyperparameter_figure(grid, style=style), style).axes
    shown = {text.get_position(): text.get_text() for text in flat.texts}
    assert len(shown) == 20
    assert shown[1, 1] == "90.0"  # λ2 across, λ1 upwards
    assert shown[2, 3] == "80.0"
    assert sorted(shown.values()).count("not run") == 18
    hatched = [patch for patch in flat.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    assert len(hatched) == 18
    (framed,) = [patch for patch in flat.patches if not patch.get_fill()]
    assert (framed.get_x() + 0.47, framed.get_y() + 0.47) == (pytest.approx(1), pytest.approx(1))
    assert len(space.collections) == 2
    assert len(space.lines) == 18
    assert "× not run" in space.get_title()


def test_a_grid_without_any_run_of_its_places_is_drawn_empty():
    grid = hyperparameter_grid([run(entropy=0.3)])
    assert len(grid.missing) == 20
    drawn(hyperparameter_figure(grid))


def test_bars_of_time_have_the_seconds_and_say_what_was_not_reached():
    results = [
        run("ckb", epochs={"target_accuracy": [0.2, 0.95]}, final={"seconds": 10.0}),
        run("source", epochs={"target_accuracy": [0.2, 0.3]}, final={"seconds": 4.0}),
    ]
    left, right = drawn(time_figure(time_table(results))).axes
    assert [bar.get_width() for bar in left.patches] == [2.0, 5.0]
    assert [bar.get_width() for bar in right.patches] == [0.0, 10.0]
    assert texts(right) == ["not reached", "10.0"]
    assert [label.get_text() for label in left.get_yticklabels()] == ["source", "ckb"]


def test_curves_of_training_are_on_their_own_axes():
    epochs = {"target_accuracy": [0.5, 0.75], "ckb": [0.5, 0.25], "means": [0.25, 0.25]}
    figure = drawn(training_figure(training_curves([run("ckw", epochs=epochs)])))
    accuracy, distances = figure.axes
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [[50.0, 75.0]]
    assert [line.get_ydata().tolist() for line in distances.lines] == [[0.5, 0.25], [0.75, 0.5]]
    assert accuracy.lines[0].get_xdata().tolist() == [1, 2]


@pytest.mark.parametrize("kernel", ["linear", "gaussian"])
def test_convergence_is_that_of_the_manifest(kernel):
    manifest = json.loads(CONVERGENCE.read_text())
    figure = drawn(convergence_figure(convergence_table(read_convergence(CONVERGENCE), kernel=kernel)))
    medians = manifest["results"]["median_errors_by_size"]
    axes = figure.axes[3]  # the distance to its limit
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert len(lines) == 3
    for label, line in lines.items():
        alpha = label.split(":")[0].removeprefix("α = ")
        assert line.get_ydata().tolist() == medians[f"{kernel} ckb limit alpha={alpha}"]
        assert line.get_xdata().tolist() == manifest["settings"]["sizes"]


def test_a_manifest_that_is_missing_or_another_comes_with_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"make it with: python examples/convergence\.py"):
        read_convergence(tmp_path / "convergence.json")
    (tmp_path / "convergence.json").write_text('{"results": {}}')
    with pytest.raises(ValueError, match="is no manifest of the convergence example"):
        read_convergence(tmp_path / "convergence.json")
    with pytest.raises(ValueError, match="kernel='cubic'"):
        convergence_table(read_convergence(CONVERGENCE), kernel="cubic")


def test_marginal_alignment_meets_the_wrong_class_and_conditional_alignment_the_right_one():
    before, marginal, conditional = states = alignment_states(80)
    for state in states:
        assert state.distances["CKW"] == pytest.approx(bures.ckw(*state.pair))
        assert state.distances["MMD"] == pytest.approx(bures.mmd(state.pair.xs, state.pair.xt))
    assert before.distances["MMD"] > 20 * max(marginal.distances["MMD"], conditional.distances["MMD"])
    assert conditional.distances["CKW"] < 0.01 < 0.3 < marginal.distances["CKW"]
    assert marginal.accuracy < 0.1 < 0.9 < conditional.accuracy
    figure = drawn(alignment_figure(states))
    assert all(f"{100 * s.accuracy:.0f} %" in a.get_xlabel() for s, a in zip(states, figure.axes, strict=True))


def test_the_flowchart_has_the_blocks_of_the_network_with_their_shapes():
    network = build_network("lenet", 7, hidden=32, features=16, image_size=28, seed=0)
    blocks = network_blocks(network, (1, 28, 28))
    assert [block.shape for block in blocks] == [(20, 12, 12), (50, 4, 4), (500,), (32,), (16,), (7,)]
    assert blocks[0].words == ("conv 5×5", "BatchNorm", "max pool", "ReLU")
    assert blocks[2].words[0] == "flatten"
    assert [block.part for block in blocks] == ["backbone"] * 3 + ["bottleneck"] * 2 + ["classifier"]
    assert all(module.training for module in network.modules())  # as it was
    shown = texts(drawn(network_figure("lenet", n_classes=7, method="ckw")).axes[0])
    assert "20 × 12 × 12" in shown
    assert "logits: 7; their softmax is p" in shown
    assert "class means, weight 1" in shown
    stages = network_blocks(build_network("resnet18", 5), (3, 64, 64))
    assert [block.words[0] for block in stages[1:5]] == ["2 × BasicBlock"] * 4
    with pytest.raises(ValueError, match="method='dann' is unknown"):
        network_figure(method="dann")


@pytest.mark.parametrize("method", ["im", "ckb+mmd", "source"])
def test_all_boxes_of_the_flowchart_lie_in_the_picture(method):
    (axes,) = drawn(network_figure("identity", method=method)).axes
    for patch in axes.patches:
        box = patch.get_extents().transformed(axes.transAxes.inverted())
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= 1
        assert box.y1 <= 1


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    domains = pictures(60, seed=0), pictures(48, seed=1, shift=40, name="target")
    for method in ("source", "ckw"):
        recipe = Recipe(method=method, network="lenet", epochs=2, hidden=16, features=8, batch_size=16)
        adapt(*domains, recipe, folder / method)
    return folder, domains


def test_maps_of_features_carry_distances_of_the_features_themselves(runs):
    folder, (source, target) = runs
    model = load_model(folder / "ckw")
    state = feature_state(model, source, target, title="t", own_statistics=False, n=40)
    assert (len(state.plane_s), len(state.plane_t)) == (40, 40)
    generator = torch.Generator().manual_seed(0)
    own = [d.take(torch.randperm(len(d), generator=generator)[:40].sort().values) for d in (source, target)]
    zs, zt = (model.predict(domain).features.double().numpy() for domain in own)
    assert state.ckw == pytest.approx(bures.ckw(zs, own[0].labels.numpy(), zt, own[1].labels.numpy()))
    assert state.known
    figure = drawn(tsne_figure([state, state]))
    assert len(figure.axes) == 4
    assert figure.axes[0].get_xlabel() == f"A-distance {state.a_distance:.2f}"
    assert f"CKW {state.ckw:.3f}" in figure.axes[2].get_xlabel()


def test_the_source_is_normalised_by_its_own_statistics_where_training_did_so(runs):
    folder, (source, target) = runs
    model = load_model(folder / "ckw")
    shared, own = (feature_state(model, source, target, title="", own_statistics=flag, n=30) for flag in (False, True))
    assert shared.ckw != own.ckw
    assert load_model(folder / "ckw").predict(source).features.equal(model.predict(source).features)  # unchanged


def test_without_labels_predictions_stand_in_and_the_picture_says_so(runs):
    folder, (source, target) = runs
    state = feature_state(load_model(folder / "source"), source, replace(target, labels=None), title="", n=30)
    assert not state.known
    figure = drawn(tsne_figure([state]))
    assert "predicted classes" in figure.axes[1].get_xlabel()


def test_names_of_classes_are_drawn_as_they_are(runs):
    folder, (source, target) = runs
    state = feature_state(load_model(folder / "source"), source, target, title="", n=30)
    names = tuple(f"${name}\\class$" for name in state.classes)
    figure = drawn(tsne_figure([replace(state, classes=names)]))
    assert {text.get_text() for text in figure.axes[1].texts} == set(names)


def test_run_folders_that_cannot_be_drawn_say_why(runs, tmp_path):
    folder, _ = runs
    with pytest.raises(FileNotFoundError, match="bures adapt --method source -o"):
        run_feature_state(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="it holds the runs ckw, source"):
        run_feature_state(folder)
    for name in ("training", "time"):
        with pytest.raises(FileNotFoundError, match="it holds the runs ckw, source"):
            draw_figure(name, [folder])
    with pytest.raises(ValueError, match="does not say where its data come from"):
        run_feature_state(folder / "ckw")
    with pytest.raises(ValueError, match=r"1 run folders are given; accepted are two"):
        draw_figure("tsne", [folder / "ckw"])


def test_the_training_of_a_run_folder_is_its_log(runs):
    folder, _ = runs
    (table,) = training_curves(run_results(folder / "ckw")).values()
    rows = json.loads((folder / "ckw" / "manifest.json").read_text())["epochs"]
    assert table["ckw", "mean"].tolist() == pytest.approx([row["ckb"] + row["means"] for row in rows])
    assert table["accuracy", "mean"].tolist() == pytest.approx([100 * row["target_accuracy"] for row in rows])


def test_the_a_distance_needs_no_label_and_is_balanced():
    rng = np.random.default_rng(1)
    zs, zt = rng.normal(size=(400, 2)), rng.normal(size=(40, 2))
    assert abs(a_distance(zs, zt)) < 0.5  # always saying "source" would be right in ten of eleven cases
    # A shift by δ of standard normals: the best linear classifier errs with Φ(-δ/2).
    shifted = rng.normal(loc=(2.0, 0.0), size=(400, 2))
    assert a_distance(zs, shifted) == pytest.approx(2 * (1 - 2 * 0.1587), abs=0.15)
    with pytest.raises(ValueError, match="at least five"):
        a_distance(zs, zt[:4])


def test_every_seed_that_torch_takes_is_one_for_scikit_learn_too():
    zs, zt = np.random.default_rng(1).normal(size=(2, 10, 2))
    assert a_distance(zs, zt, seed=2**32 + 5) == a_distance(zs, zt, seed=5)
    features = np.concatenate([zs, zt])
    np.testing.assert_array_equal(tsne_plane(features, 2**32 + 5), tsne_plane(features, 5))
    domain = Domain("few", TensorSamples(torch.from_numpy(zs).float()), ("one",), torch.zeros(10, dtype=torch.int64))
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match=f"seed={seed} is not accepted; accepted is an integer from 0"):
            a_distance(zs, zt, seed=seed)
        with pytest.raises(ValueError, match=f"seed={seed} is not accepted; accepted is an integer from 0"):
            some_of_each(domain, domain, 5, seed)


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    figure = network_figure("identity")
    paths = save_figure(figure, tmp_path / "a.b", ["svg", "pdf", "png"])
    assert [path.name for path in paths] == ["a.b.svg", "a.b.pdf", "a.b.png"]
    assert [path.read_bytes()[:4] for path in paths] == [b"<?xm", b"%PDF", b"\x89PNG"]
    kept = {path: path.read_bytes() for path in paths}
    real = Figure.savefig

    def fails(self, stream, *, format, **rest):
        if format == "png":
            raise OSError("no space left")
        return real(self, stream, format=format, **rest)

    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(OSError, match="no space"):
        save_figure(network_figure("identity", n_classes=3), tmp_path / "a.b")
    assert {path: path.read_bytes() for path in paths} == kept
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    first, second = (
        [path.read_bytes() for path in save_figure(network_figure("identity"), tmp_path / name)] for name in "ab"
    )
    assert first == second


def luminance(colour):
    """Relative luminance of WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_text_and_colours_stand_out_from_the_ground(style):
    assert contrast(style.ink, style.paper) > 12
    for colour in style.palette:
        assert contrast(colour, style.paper) > 2, colour
    assert len({style.colour(number) for number in range(10)}) == 10


def test_settings_of_the_user_are_left_alone_and_have_no_say():
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 33, "axes.facecolor": "#123456"}):
        figure = training_figure(training_curves([run(epochs={"target_accuracy": [0.5], "ckb": [0.25]})]))
        assert mpl.rcParams["font.size"] == 33
    assert to_hex(figure.axes[1].get_facecolor()) == "#ffffff"
    assert figure.axes[0].xaxis.label.get_fontsize() == style_named("light").size


def scored(task, accuracies, **scores):
    epochs = {"target_accuracy": accuracies} | {f"score_{name}": values for name, values in scores.items()}
    return {"key": "", "task": task, "method": "ckb", "epochs": epochs}


@pytest.mark.parametrize("style", STYLES)
def test_points_of_the_validators_stand_at_their_regrets(style):
    good, bad = [0.5, 0.9, 0.7], [0.9, 0.1, 0.5]
    first = [scored("a->b", [0.5, 0.9, 0.7], ckw=good, im=bad), scored("a->b", [0.5, 0.8, 0.6], ckw=good, im=good)]
    older = [{"task": "a->b", "epochs": [{"epoch": 1, "target_accuracy": 0.5, "target_score": 1.0}]}]
    table = validator_table({"digits": [*first, *older], "office10": older})
    assert table.attrs["left_out"] == {"digits": 1, "office10": 0}
    assert table.loc[("digits", "im"), "regret"] == pytest.approx((40 + 0) / 2)
    assert table.loc[("digits", "none"), ["regret", "regret_runs"]].tolist() == pytest.approx([20, 70 - 65])
    left, right = drawn(validator_figure(table, style=style), style).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["ckw", "im", "last epoch, any run"]
    digits, office10 = [line for line in left.lines if line.get_marker() != "None" and len(line.get_xdata()) > 1]
    assert digits.get_xdata() == pytest.approx([0, 20, 20])
    assert digits.get_marker() != office10.get_marker()
    assert np.isnan(office10.get_xdata()[0])  # ckw has scored no run there
    assert right.get_title() == "choice among the runs of a task"


def test_without_scores_there_is_nothing_to_draw():
    with pytest.raises(ValueError, match="no run of the ledgers has scores of validators; accepted are trainings"):
        validator_table({"office10": [{"task": "a->b", "epochs": {"target_accuracy": [0.5]}}]})
