"""Data with known structure, made on the spot."""

from bures.data._synthetic import DomainPair, GaussianClasses, drifting_class, exchanged_regions

__all__ = ["DomainPair", "GaussianClasses", "drifting_class", "exchanged_regions"]
