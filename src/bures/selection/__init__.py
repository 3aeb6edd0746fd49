"""Model selection without target labels, and confidence that can be trusted: validators, their study, calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bures.lazy import lazy_names

if TYPE_CHECKING:
    from bures.selection._calibration import Bin as Bin
    from bures.selection._calibration import Reliability as Reliability
    from bures.selection._calibration import expected_calibration_error as expected_calibration_error
    from bures.selection._calibration import fit_temperature as fit_temperature
    from bures.selection._calibration import reliability as reliability
    from bures.selection._calibration import scale_probabilities as scale_probabilities
    from bures.selection._distances import negative_ckb as negative_ckb
    from bures.selection._distances import negative_ckw as negative_ckw
    from bures.selection._evidence import Evidence as Evidence
    from bures.selection._importance import controlled_risk as controlled_risk
    from bures.selection._importance import importance_weights as importance_weights
    from bures.selection._importance import negative_dev as negative_dev
    from bures.selection._importance import negative_iwcv as negative_iwcv
    from bures.selection._importance import source_accuracy as source_accuracy
    from bures.selection._importance import weighted_risk as weighted_risk
    from bures.selection._predictions import information as information
    from bures.selection._predictions import negative_entropy as negative_entropy
    from bures.selection._predictions import neighbourhood_density as neighbourhood_density
    from bures.selection._predictions import relative_nuclear_norm as relative_nuclear_norm
    from bures.selection._preference import compare_validators as compare_validators
    from bures.selection._preference import preferred_validator as preferred_validator
    from bures.selection._reverse import reverse_accuracy as reverse_accuracy
    from bures.selection._study import study as study
    from bures.selection._study_rows import comparable_runs as comparable_runs
    from bures.selection._validator import DEFAULT_VALIDATOR as DEFAULT_VALIDATOR
    from bures.selection._validator import Validator as Validator
    from bures.selection._validator import make_validator as make_validator
    from bures.selection._validator import validator_names as validator_names
    from bures.selection._validator import validator_options as validator_options

# The study needs pandas and a temperature SciPy, which a training that wants neither does not load.
_HOMES = {
    "Bin": "bures.selection._calibration",
    "Reliability": "bures.selection._calibration",
    "expected_calibration_error": "bures.selection._calibration",
    "fit_temperature": "bures.selection._calibration",
    "reliability": "bures.selection._calibration",
    "scale_probabilities": "bures.selection._calibration",
    "negative_ckb": "bures.selection._distances",
    "negative_ckw": "bures.selection._distances",
    "Evidence": "bures.selection._evidence",
    "controlled_risk": "bures.selection._importance",
    "importance_weights": "bures.selection._importance",
    "negative_dev": "bures.selection._importance",
    "negative_iwcv": "bures.selection._importance",
    "source_accuracy": "bures.selection._importance",
    "weighted_risk": "bures.selection._importance",
    "information": "bures.selection._predictions",
    "negative_entropy": "bures.selection._predictions",
    "neighbourhood_density": "bures.selection._predictions",
    "relative_nuclear_norm": "bures.selection._predictions",
    "compare_validators": "bures.selection._preference",
    "preferred_validator": "bures.selection._preference",
    "reverse_accuracy": "bures.selection._reverse",
    "study": "bures.selection._study",
    "comparable_runs": "bures.selection._study_rows",
    "DEFAULT_VALIDATOR": "bures.selection._validator",
    "Validator": "bures.selection._validator",
    "make_validator": "bures.selection._validator",
    "validator_names": "bures.selection._validator",
    "validator_options": "bures.selection._validator",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
