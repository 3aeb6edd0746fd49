"""skada, an independent implementation, for the tests that compare with it; they skip where it is missing."""

import warnings

import pytest
import sklearn


def import_skada():
    """The package with its deep part; importing it changes a setting of scikit-learn for all, which is put back."""
    before = sklearn.get_config()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            skada = pytest.importorskip("skada")
            pytest.importorskip("skada.deep", exc_type=ImportError)
        finally:
            sklearn.set_config(**before)
    return skada


def agrees(found, wanted, rel=1e-5):
    """Whether two scalars are equal up to rounding, for a peer that may have mended its error meanwhile."""
    return found.item() == pytest.approx(wanted.item(), rel=rel)
