"""Domains as a head sees them: in place of their samples, what the backbone makes of them."""

from __future__ import annotations

from dataclasses import replace

from bures.data import Domain, TensorSamples
from bures.data._decoding import Progress
from bures.data._samples import Samples
from bures.networks import Network
from bures.training._inputs import Inputs
from bures.training._prediction import backbone_rows

__all__ = ["BackboneRows"]


class BackboneRows:
    """Passes domains through a backbone in evaluation mode; samples that several domains share pass once.

    Parameters
    ----------
    network : Network
        Its backbone is used, and left in the mode it was in.
    inputs : Inputs
        What is done to samples before the network sees them; at evaluation, so nothing is changed at random.
    batch_size, n_workers : int, optional
        As for `predict_samples`.
    progress : callable, optional
        Called as ``progress(done, total)`` after each batch of a domain.
    """

    def __init__(
        self,
        network: Network,
        inputs: Inputs,
        *,
        batch_size: int | None = None,
        n_workers: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.network, self.inputs = network, inputs
        self.batch_size, self.n_workers, self.progress = batch_size, n_workers, progress
        self._passed: dict[int, tuple[Samples, TensorSamples]] = {}  # the samples too: a number is free when they go

    def of(self, domain: Domain) -> Domain:
        """The domain with rows (n, p) on the device of the network; an error where one of them is not finite."""
        samples = domain.samples
        if id(samples) not in self._passed:
            rows = backbone_rows(
                self.network,
                samples,
                self.inputs,
                batch_size=self.batch_size,
                n_workers=self.n_workers,
                progress=self.progress,
            )
            if not bool(rows.isfinite().all()):
                raise FloatingPointError(f"the backbone gives features of {domain.name!r} that are not finite")
            self._passed[id(samples)] = (samples, TensorSamples(rows))
        return replace(domain, samples=self._passed[id(samples)][1], feature_names=None)
