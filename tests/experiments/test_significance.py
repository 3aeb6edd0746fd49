"""Paired tests and ranks: against definitions, tables in print and brute force."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bures.experiments import (
    Ranking,
    accuracy_matrix,
    holm,
    load_grid,
    nemenyi,
    paired_tests,
    rank_figure,
    rank_methods,
)


def exact_signed_rank(gaps):
    """The two-sided p-value by all 2^n signs."""
    ranks = stats.rankdata(np.abs(gaps))
    observed = min(ranks[gaps > 0].sum(), ranks[gaps < 0].sum())
    sums = [ranks @ np.array(signs) for signs in itertools.product((0, 1), repeat=len(gaps))]
    return min(1.0, 2 * np.mean([value <= observed for value in sums]))


def test_the_p_value_is_that_of_all_signs():
    rng = np.random.default_rng(3)
    matrix = pd.DataFrame({"ckb": rng.normal(1, 2, 10), "source": rng.normal(0, 2, 10)})
    (test,) = paired_tests(matrix, "ckb")
    gaps = (matrix["ckb"] - matrix["source"]).to_numpy()
    assert test.p == pytest.approx(exact_signed_rank(gaps))
    assert test.difference == pytest.approx(gaps.mean())
    assert (test.n, test.wins, test.losses) == (10, (gaps > 0).sum(), (gaps < 0).sum())


def test_equal_columns_have_p_one_and_missing_pairs_are_left_out():
    matrix = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [1.0, 2, 3, np.nan], "c": [np.nan] * 4})
    (test,) = paired_tests(matrix, "a")
    assert (test.method, test.n, test.wins, test.ties, test.losses) == ("b", 3, 0, 3, 0)
    assert (test.p, test.p_holm) == (1.0, 1.0)
    with pytest.raises(ValueError, match="reference='d' is not among the methods that were run; accepted are: a, b, c"):
        paired_tests(matrix, "d")


def test_tasks_are_compared_on_the_seeds_that_both_methods_have():
    index = pd.MultiIndex.from_product([list("uvwxyz"), [0, 1, 2]], names=["task", "seed"])
    base = pd.DataFrame({"a": np.arange(18.0) ** 2}, index=index)
    matrix = base.assign(b=base["a"] - 1)
    matrix.loc[pd.IndexSlice[:, 2], "b"] = np.nan  # the last seed, on which a has its best results
    matrix.loc["z", "b"] = np.nan
    (test,) = paired_tests(matrix, "a", over="tasks")
    assert (test.n, test.difference, test.wins) == (5, 1.0, 5)
    assert paired_tests(matrix, "a") == [test]  # there are six tasks
    (test,) = paired_tests(matrix, "a", over="seeds")
    assert (test.n, test.difference, test.wins) == (10, 1.0, 10)
    assert paired_tests(matrix.rename_axis([None, None]), "a", over="seeds") == [test]  # whose names are not needed
    with pytest.raises(ValueError, match="over='lines' is unknown"):
        paired_tests(matrix, "a", over="lines")


def test_holm_rejects_what_the_step_down_rule_rejects():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.uniform(0, 0.2, size=6)
        order, rejected = np.argsort(p), set()
        for step, number in enumerate(order):
            if p[number] > 0.05 / (6 - step):
                break
            rejected.add(number)
        assert {number for number, value in enumerate(holm(list(p))) if value <= 0.05} == rejected
    assert holm([]) == []


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (3, 2.343), (5, 2.728), (8, 3.031), (10, 3.164)])
def test_the_critical_difference_has_the_constants_in_print(k, q):
    """Table 5 of Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006."""
    assert nemenyi(k, 12) == pytest.approx(q * np.sqrt(k * (k + 1) / 72), abs=1e-3)


def test_ranks_ties_and_groups():
    rng = np.random.default_rng(1)
    base = rng.normal(60, 5, size=30)
    matrix = pd.DataFrame({"worst": base - 9, "best": base + 9, "middle": base, "twin": base})
    matrix["partial"] = np.where(np.arange(30) == 4, np.nan, base)
    ranking = rank_methods(matrix)
    assert ranking.ranks == {"best": 1.0, "middle": 2.5, "twin": 2.5, "worst": 4.0}
    assert ranking.left_out == ("partial",)
    assert ranking.groups() == [("middle", "twin")]
    assert ranking.p < 1e-10
    assert ranking.critical_difference == pytest.approx(nemenyi(4, 30))


def test_two_methods_and_equal_ones_have_ranks_and_no_p_value():
    """Friedman's test is for three methods or more, and undefined where all are the same."""
    few = pd.DataFrame({"a": [3.0, 4, 5], "b": [1.0, 2, 9]})
    assert rank_methods(few).ranks == pytest.approx({"a": 4 / 3, "b": 5 / 3})
    assert np.isnan(rank_methods(few).p)
    equal = rank_methods(pd.DataFrame({name: [3.0, 4, 5] for name in "abc"}))
    assert set(equal.ranks.values()) == {2.0}
    assert np.isnan(equal.p)


def test_lines_on_which_most_methods_are_missing_do_not_count():
    matrix = pd.DataFrame({"a": [3.0, 4, 5], "b": [1.0, 2, np.nan], "c": [0.0, 1, np.nan]})
    ranking = rank_methods(matrix)
    assert ranking.n == 2
    assert ranking.ranks == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert ranking.left_out == ()


def test_groups_are_the_largest_intervals_below_the_critical_difference():
    ranking = Ranking({"a": 1.0, "b": 2.0, "c": 2.9, "d": 6.0}, 1.95, 9, "tasks", 0.01, 0.05, ())
    assert ranking.groups() == [("a", "b", "c")]
    ranking = Ranking({"a": 1.0, "b": 2.0, "c": 2.9, "d": 6.0}, 1.5, 9, "tasks", 0.01, 0.05, ())
    assert ranking.groups() == [("a", "b"), ("b", "c")]


def test_the_figure_names_every_method_and_the_difference():
    ranking = Ranking({"a_b": 1.0, "$x$": 2.0, "c": 2.9}, 1.5, 9, "tasks", 0.01, 0.05, ())
    figure = rank_figure(ranking, title="Two words")
    figure.draw_without_rendering()
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert {"a_b  1.0", "critical difference 1.50", "Two words"} <= texts
    assert any("c" in text and "2.9" in text for text in texts)


def result(method, task, seed, accuracy, recipe="office10-features"):
    source, target = (f"office10/resnet50.npz#{side}" for side in task.split(":"))
    return {
        "key": f"{task}{recipe}{method}{seed}",
        "task": f"{source}->{target}",
        "recipe_name": recipe,
        "method": method,
        "seed": seed,
        "changes": {},
        "final": {"accuracy": accuracy},
    }


def test_lines_are_tasks_or_seeds_of_tasks():
    grid = load_grid("office10")
    results = [result("ckb", task, seed, 0.5 + 0.1 * seed) for task in grid.tasks for seed in (0, 1)]
    results += [result("gfk", task, 0, 0.25, "shallow") for task in grid.tasks]
    results += [result("target", task, 0, 1.0) for task in grid.tasks]
    tasks = accuracy_matrix(grid, results)
    assert list(tasks.index) == list(grid.tasks)
    assert list(tasks.columns) == ["ckb", "gfk"]  # the upper bound is no competitor
    assert tasks["ckb"].tolist() == pytest.approx([55.0] * 12)
    seeds = accuracy_matrix(grid, results, over="seeds")
    assert len(seeds) == 24
    assert seeds["gfk"].tolist() == [25.0] * 24  # no random numbers: the same for every seed
    assert accuracy_matrix(grid, []).empty
    assert list(accuracy_matrix(grid, results, methods=["gfk", "target"]).columns) == ["gfk"]
    assert list(accuracy_matrix(grid, results, recipes=["shallow"]).columns) == ["gfk"]
    elsewhere = result("dann", "amazon:dslr", 0, 0.5) | {"task": "usps->mnist"}
    assert list(accuracy_matrix(grid, [*results, elsewhere]).columns) == ["ckb", "gfk"]
    later_first = accuracy_matrix(grid, results[::-1], over="seeds")
    assert list(later_first.index) == list(seeds.index)


def test_a_method_with_two_recipes_has_two_columns():
    grid = load_grid("office10")
    results = [result("ckb", "amazon:dslr", 0, 0.5), result("ckb", "amazon:dslr", 0, 0.6, "paper-code")]
    assert list(accuracy_matrix(grid, results).columns) == ["ckb (office10-features)", "ckb (paper-code)"]
