"""
Is there a shift within the classes?
====================================

A distance between two finite samples is never zero. Whether it is larger than chance makes it is a question for a
permutation test: :func:`bures.conditional_test` exchanges samples between the domains *within their classes*, so that
only :math:`P(X|Y)` is mixed, and compares the distance with what it then is.

Two classes exchange part of their regions here, while the cloud of all points and the class frequencies stay as they
are. A test of :math:`P(X)` finds nothing, one of :math:`P(X|Y)` does.
"""

import matplotlib.pyplot as plt
from _common import read_arguments, save_figure, write_manifest

import bures
from bures.testing import out_of_fold_labels

arguments = read_arguments("two_sample_test")
N = 100 if arguments.quick else 200
PERMUTATIONS = 199 if arguments.quick else 999

# %%
# The test, with the p-value of every class and its correction for their number.

pair = bures.data.exchanged_regions(N, share=0.35, seed=arguments.seed)
conditional = bures.conditional_test(*pair, n_permutations=PERMUTATIONS, seed=arguments.seed)
marginal = bures.marginal_test(pair.xs, pair.xt, n_permutations=PERMUTATIONS, seed=arguments.seed)
print(conditional)
print()
print(marginal)

# %%
# The null sample is what the statistic would be without a shift.

figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
conditional.plot(axes[0]).set_title("P(X|Y): the classes have exchanged regions")
marginal.plot(axes[1]).set_title("P(X): as a whole nothing has changed")
save_figure(figure, arguments.output, "two_sample_test")

# %%
# Without target labels, a classifier predicts the classes: in both domains, and for samples it was not trained on.
# True labels beside predicted ones are refused, because the classifier's errors would look like a shift.

drifted = bures.data.drifting_class(N, drift=1.0, seed=arguments.seed)
ys, yt = out_of_fold_labels(drifted.xs, drifted.ys, drifted.xt, seed=arguments.seed)
predicted = bures.conditional_test(drifted.xs, ys, drifted.xt, yt, n_permutations=PERMUTATIONS, seed=arguments.seed)
print(predicted)
try:
    bures.conditional_test(drifted.xs, drifted.ys, drifted.xt, yt)
except ValueError as error:
    print(f"\nrefused: {error}")

# %%
# Several bandwidths at once: no choice has to be made, and the level is exact all the same.

aggregated = bures.conditional_test(*pair, bandwidth="aggregate", n_permutations=PERMUTATIONS, seed=arguments.seed)
print(aggregated)

write_manifest(
    "two_sample_test",
    arguments,
    {"n": N, "n_permutations": PERMUTATIONS},
    {
        name: test.to_dict()
        for name, test in (
            ("conditional", conditional),
            ("marginal", marginal),
            ("predicted", predicted),
            ("aggregated", aggregated),
        )
    },
)
