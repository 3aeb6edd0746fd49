"""Mergeable conditional moments: the distances of `bures.metrics` for any number of samples and machines."""

from bures.moments._conditional import ConditionalMoments
from bures.moments._distances import MomentDistance
from bures.moments._streams import read_chunks

__all__ = ["ConditionalMoments", "MomentDistance", "read_chunks"]
