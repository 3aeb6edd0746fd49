"""Networks: a backbone by name, the head on which the alignment acts, weights from files, BatchNorm policies."""

from bures.networks._backbones import Backbone, backbone, backbone_names
from bures.networks._batchnorm import FrozenBatchNorm, adapt_batchnorm, freeze_batchnorm
from bures.networks._build import HEADS, build_network
from bures.networks._head import BottleneckHead, LinearHead, NetworkOutput
from bures.networks._lenet import NORMS, LeNet
from bures.networks._network import Network
from bures.networks._preprocessing import Preprocessing
from bures.networks._stages import freeze_stages
from bures.networks._weights import read_weights

__all__ = [
    "HEADS",
    "NORMS",
    "Backbone",
    "BottleneckHead",
    "FrozenBatchNorm",
    "LeNet",
    "LinearHead",
    "Network",
    "NetworkOutput",
    "Preprocessing",
    "adapt_batchnorm",
    "backbone",
    "backbone_names",
    "build_network",
    "freeze_batchnorm",
    "freeze_stages",
    "read_weights",
]
