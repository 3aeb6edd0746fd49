"""Our validators against skada's scorers, where these measure the same thing."""

import numpy as np
import pytest
import sklearn

from bures.selection import negative_entropy, neighbourhood_density

# skada calls scikit-learn in a way that is deprecated there.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture
def metrics():
    """skada's scorers; they need metadata routing, which importing skada switches on for good and this only here."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield pytest.importorskip("skada.metrics")


class Fixed:
    """An estimator whose predictions are given."""

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def predict_proba(self, X, sample_domain=None, **_):
        return self.probabilities


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(4, 0.3), size=60)
    X = rng.normal(size=(100, 2))
    sample_domain = np.repeat([1, -2], [40, 60])
    y = np.where(sample_domain > 0, rng.integers(4, size=100), -1)
    return p, X, y, sample_domain


def test_soft_neighbourhood_density_is_skadas_per_row(metrics, case):
    p, X, y, sample_domain = case
    theirs = metrics.SoftNeighborhoodDensity()(Fixed(p), X, y, sample_domain)
    # There a sample keeps a weight of its own below exp(-1 / 0.05) of its neighbours'.
    assert neighbourhood_density(p) == pytest.approx(theirs, abs=1e-6)


def test_entropy_is_skadas_times_the_number_of_classes(metrics, case):
    """skada averages over all entries of the matrix, we over samples."""
    p, X, y, sample_domain = case
    theirs = metrics.PredictionEntropyScorer()(Fixed(p), X, y, sample_domain)
    assert negative_entropy(p) == pytest.approx(4 * theirs, abs=1e-4)
