"""Which public names the targets exercise: a name that is added to a package needs a target, or a reason here."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.campaign import TARGETS

PACKAGES = (
    "bures",
    "bures.data",
    "bures.estimators",
    "bures.feature_maps",
    "bures.kernels",
    "bures.labels",
    "bures.losses",
    "bures.methods",
    "bures.metrics",
    "bures.moments",
    "bures.running_losses",
    "bures.selection",
    "bures.shift",
    "bures.testing",
)

FILES = "reads files: see file_fuzz"
WRITTEN = "is called by the trainer alone"
A_TYPE = "is a type, nothing that is called"
A_CONSTANT = "is a constant"
A_PACKAGE = "is a package, listed by itself"

EXEMPT: dict[str, str] = {
    "bures.bures": "is bures.metrics.bures: beside it, the name of the package would be ambiguous",
    "bures.data": A_PACKAGE,
    "bures.selection": A_PACKAGE,
    "bures.testing": A_PACKAGE,
    "bures.data.BadImageWarning": A_TYPE,
    "bures.data.ImageFiles": FILES,
    "bures.data.LostDigitsWarning": A_TYPE,
    "bures.data.benchmark_domain": FILES,
    "bures.data.check_images": FILES,
    "bures.data.extract_features": FILES,
    "bures.data.image_folder": FILES,
    "bures.data.load_domain": FILES,
    "bures.data.mnist": FILES,
    "bures.data.mnist5k": "takes a size alone; tests/data has its cases",
    "bures.data.optdigits": "takes a size alone; tests/data has its cases",
    "bures.data.read_features": FILES,
    "bures.data.usps": FILES,
    "bures.data.write_features": FILES,
    "bures.kernels.BANDWIDTH_RULES": A_CONSTANT,
    "bures.kernels.Bandwidth": A_TYPE,
    "bures.kernels.KERNELS": A_CONSTANT,
    "bures.kernels.Kernel": A_TYPE,
    "bures.labels.Conditioning": A_TYPE,
    "bures.labels.Kind": A_TYPE,
    "bures.methods.OwnStep": WRITTEN,
    "bures.methods.OwnTraining": WRITTEN,
    "bures.methods.StepReport": WRITTEN,
    "bures.selection.DEFAULT_VALIDATOR": A_CONSTANT,
}


def public_names() -> list[str]:
    """Every name in the ``__all__`` of the packages, with its package."""
    return [f"{package}.{name}" for package in PACKAGES for name in import_module(package).__all__]


def covered_names() -> set[str]:
    """The names that targets say they exercise."""
    return {name for one in TARGETS.values() for name in one.covers}
