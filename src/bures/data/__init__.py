"""Domains: samples, class names and, where known, labels; embedded, from files, or made on the spot."""

from bures.data._classes import align_classes
from bures.data._columns import align_columns
from bures.data._decoding import BadImageWarning, check_images
from bures.data._diagnosis import Diagnosis, diagnose
from bures.data._digits import mnist, usps
from bures.data._domain import Domain, HiddenLabels
from bures.data._embedded import mnist5k, optdigits
from bures.data._extraction import extract_features
from bures.data._feature_files import LostDigitsWarning, read_features, write_features
from bures.data._findings import Finding
from bures.data._folders import benchmark_domain, image_folder
from bures.data._registry import load_domain
from bures.data._samples import ImageFiles, TensorSamples
from bures.data._synthetic import DomainPair, GaussianClasses, drifting_class, exchanged_regions, rotated_moons

__all__ = [
    "BadImageWarning",
    "Diagnosis",
    "Domain",
    "DomainPair",
    "Finding",
    "GaussianClasses",
    "HiddenLabels",
    "ImageFiles",
    "LostDigitsWarning",
    "TensorSamples",
    "align_classes",
    "align_columns",
    "benchmark_domain",
    "check_images",
    "diagnose",
    "drifting_class",
    "exchanged_regions",
    "extract_features",
    "image_folder",
    "load_domain",
    "mnist",
    "mnist5k",
    "optdigits",
    "read_features",
    "rotated_moons",
    "usps",
    "write_features",
]
