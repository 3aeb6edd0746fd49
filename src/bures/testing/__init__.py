"""Two-sample tests by permutation: is there a shift in P(X|Y), is there one in P(X)."""

from bures.testing._conditional import conditional_test
from bures.testing._marginal import marginal_test
from bures.testing._predictions import LabelPair, PredictedLabels, out_of_fold_labels
from bures.testing._result import ClassTest, ShiftTest

__all__ = [
    "ClassTest",
    "LabelPair",
    "PredictedLabels",
    "ShiftTest",
    "conditional_test",
    "marginal_test",
    "out_of_fold_labels",
]
