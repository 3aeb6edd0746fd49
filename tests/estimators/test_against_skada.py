"""The shallow methods against skada on the same arrays; see the deep methods' tests for how its errors are shown."""

import numpy as np
import pytest
from skada_peer import import_skada

from bures.estimators import CORAL, KGOT, TCA, SubspaceAlignment

skada = import_skada()


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 4)) @ rng.normal(size=(4, 4)), 3 + rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4))


def both(adapter, xs, xt):
    """Source and target rows as skada's adapter maps them."""
    domain = np.concatenate([np.full(len(xs), 1), np.full(len(xt), -2)])
    mapped = adapter.fit_transform(np.concatenate([xs, xt]), sample_domain=domain)
    return mapped[: len(xs)], mapped[len(xs) :]


def test_coral(pair):
    xs, xt = pair
    theirs, _ = both(skada.CORALAdapter(reg=None), xs, xt)
    ours = CORAL(reg=1e-12).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    np.testing.assert_allclose(ours - xt.mean(axis=0), theirs, atol=1e-7)  # skada centres both domains


def test_subspace_alignment(pair):
    xs, xt = pair
    theirs = both(skada.SubspaceAlignmentAdapter(n_components=2), xs, xt)
    adapter = SubspaceAlignment(2).fit_source_target(xs, None, xt)
    ours = adapter.transform(xs, sample_domain=1), adapter.transform(xt, sample_domain=np.full(len(xt), -1))
    signs = np.sign((ours[1] * theirs[1]).sum(axis=0))  # a principal axis has no direction
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(signs * one, other, atol=1e-9)


def test_the_optimal_map_between_gaussians(pair):
    xs, xt = pair
    theirs, _ = both(skada.LinearOTMappingAdapter(reg=1e-9), xs, xt)
    ours = KGOT("linear", reg=1e-9).fit_source_target(xs, None, xt).transform(xs, sample_domain=1)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_tca_solves_the_eigenproblem_while_skada_takes_its_matrix_for_symmetric(pair):
    """The matrix of the eigenproblem is a product and not symmetric; a solver for symmetric ones reads half of it."""
    xs, xt = pair
    pooled = np.concatenate([xs, xt])
    n, total = len(xs), len(pooled)
    gram = pooled @ pooled.T
    e = np.concatenate([np.full(n, 1 / n), np.full(total - n, n - total)])
    e[n:] = -1 / (total - n)
    matrix = np.linalg.solve(np.eye(total) + gram @ np.outer(e, e) @ gram, gram @ (gram - gram.mean(axis=0)))

    def residual(vectors):
        values = np.einsum("ij,ij->j", vectors, matrix @ vectors) / np.einsum("ij,ij->j", vectors, vectors)
        return np.abs(matrix @ vectors - values * vectors).max() / np.abs(values * vectors).max()

    unit = np.diag(gram).mean()
    ours = TCA(2, mu=1 / unit**2).fit_source_target(xs, None, xt).coefficients_
    assert residual(ours) < 1e-8
    adapter = skada.TransferComponentAnalysisAdapter(n_components=2, mu=1.0)
    both(adapter, xs, xt)
    assert residual(adapter.eigvects_) > 0.01 or residual(adapter.eigvects_) < 1e-6
