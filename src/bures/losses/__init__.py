"""The distances as ``nn.Module`` losses, with the defaults of the paper's training.

Two kinds of call. Losses that need labels take ``(z_s, y_s, z_t, p_t)``: source features, source labels (integers or
a matrix), target features, target probabilities. Losses that compare features only take ``(z_s, z_t)``. Each is the
pure function of the same name with its options stored; each returns a squared distance of at least float32, also
under autocast and for bfloat16 features.

Under ``torch.compile`` the losses trace into one graph (checked with torch 2.15, ``fullgraph=True``) when target
labels are probabilities; values are then not checked, shapes are. Two integer label vectors, the ``"median"``
bandwidth and weights of the unbiased MMD depend on values and break the graph; so do all of them with torch 2.4, whose
compiler knows less, with the same values.
"""

from bures.losses._conditional import CKBLoss, CKWLoss, ClassMeansLoss
from bures.losses._marginal import BuresLoss, KernelBuresLoss
from bures.losses._mmd import MMDLoss

__all__ = ["BuresLoss", "CKBLoss", "CKWLoss", "ClassMeansLoss", "KernelBuresLoss", "MMDLoss"]
