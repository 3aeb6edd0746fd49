"""Explicit features for kernels: linear, Nyström, random Fourier. With them every statistic is a sum over samples."""

from bures.feature_maps._base import FeatureMap
from bures.feature_maps._fourier import RandomFourierMap
from bures.feature_maps._linear import LinearMap
from bures.feature_maps._nystroem import NystroemMap

__all__ = ["FeatureMap", "LinearMap", "NystroemMap", "RandomFourierMap"]
