"""Domain adaptation on features, as scikit-learn estimators.

One array holds both domains: ``fit(X, y, sample_domain)`` with positive entries of ``sample_domain`` for source rows
and negative ones for target rows, as in skada; what y holds for target rows is ignored. With two arrays it is
``fit_source_target(xs, ys, xt)``. An *adapter* is a transformer: ``transform(X, sample_domain)`` maps the rows of each
domain by its own map, and the first line of an adapter says which domains move. As in skada, rows without a domain are
target rows, which are those to predict: ``transform(xt)``, and ``transform(xs, sample_domain=1)`` for source rows.
`AdaptedClassifier` puts a classifier behind any of them, trains it on source rows alone and predicts target rows.

============================  =======================================================  ==========
Adapter                       What agrees afterwards                                   Uses y
============================  =======================================================  ==========
`CORAL`                       mean and covariance                                      no
`SubspaceAlignment`           leading principal axes                                   no
`GFK`                         similarities, averaged from one subspace to the other    no
`TCA`                         mean embeddings along the components                     no
`OTIT`                        the whole distribution, up to entropy                    no
`OTClassReg`                  the same, with classes kept together                     yes
`KGOT`                        mean embedding and covariance operator                   no
`ConditionalBuresAdapter`     covariance (and mean) given the class                    yes
`CKBAdapter`                  covariance given the class                               yes
============================  =======================================================  ==========

`CKBClassifier` learns its own features instead: a network trained on both domains. It is there as
``bures.CKBClassifier`` too.

Without target rows an adapter has nothing to do and says so. Because of this, scikit-learn's ``check_estimator``,
which knows of one domain only, stops at the first ``fit`` of an adapter; the tests of this package give every fit of
the checks a target and run them all. Two go on without a target, because they serve in pipelines that are fitted on
one domain as well, and pass ``check_estimator`` as they are: `CKBClassifier` learns from the source alone, and
`CKBAdapter` warns and moves nothing.
"""

from bures.estimators._ckb_adapter import CKBAdapter
from bures.estimators._classifier import AdaptedClassifier
from bures.estimators._conditional_bures import ConditionalBuresAdapter
from bures.estimators._coral import CORAL
from bures.estimators._gfk import GFK
from bures.estimators._kgot import KGOT
from bures.estimators._network_classifier import CKBClassifier
from bures.estimators._subspace_alignment import SubspaceAlignment
from bures.estimators._tca import TCA
from bures.estimators._transport import OTIT, OTClassReg

__all__ = [
    "CORAL",
    "GFK",
    "KGOT",
    "OTIT",
    "TCA",
    "AdaptedClassifier",
    "CKBAdapter",
    "CKBClassifier",
    "ConditionalBuresAdapter",
    "OTClassReg",
    "SubspaceAlignment",
]
