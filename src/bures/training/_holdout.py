"""Source samples that training does not see: labelled samples on which the network can be judged."""

from __future__ import annotations

import torch

from bures.data import Domain

__all__ = ["hold_out", "n_kept"]


def hold_out(domain: Domain, share: float, seed: int) -> tuple[Domain, Domain]:
    """Part a labelled domain into what is trained on and what is held out, class by class.

    Parameters
    ----------
    domain : Domain
        With labels.
    share : float
        Of each class, rounded; a class keeps one sample for training at least.
    seed : int
        Decides which samples.

    Examples
    --------
    >>> from bures.data import optdigits
    >>> from bures.training._holdout import hold_out
    >>> kept, held = hold_out(optdigits(), 0.1, seed=0)
    >>> len(kept), len(held)
    (1618, 179)
    """
    assert domain.labels is not None
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(domain), dtype=torch.bool)
    for label in range(domain.n_classes):
        members = (domain.labels == label).nonzero().flatten()
        count = _held(len(members), share)
        if count > 0:
            held[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    if not bool(held.any()):
        most = int(domain.counts().max())
        which = f"whose classes have at most {most} samples; accepted is a larger share, or 0"
        if most == 1:
            which = "which has one sample of each class and none to spare; accepted is 0"
        raise ValueError(f"source_holdout={share!r} holds out no sample of source {domain.name!r}, {which}")
    return domain.take(~held), domain.take(held)


def n_kept(domain: Domain, share: float) -> int:
    """How many samples `hold_out` leaves for training."""
    return sum(count - _held(count, share) for count in domain.counts().tolist())


def _held(count: int, share: float) -> int:
    """How many samples of a class of ``count`` are held out."""
    return max(min(round(share * count), count - 1), 0)
