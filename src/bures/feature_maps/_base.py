"""What every feature map offers: calling it, moving it, its fingerprint, its file."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bures.arrays import (
    Array,
    as_feature_pair,
    as_tensor,
    check_finite,
    check_real,
    describe,
    numpy_to_tensor,
    refuse_masked,
)
from bures.columns import column_names, column_order
from bures.files import to_json
from bures.kernels import common_frame
from bures.tensor_files import read_tensors, write_tensors

__all__ = ["FeatureMap", "as_rows", "mean_row", "place", "pool", "pooled_columns"]

SCHEMA = 1
CONTENT = "a feature map of bures"


class FeatureMap(ABC):
    r"""Explicit features :math:`\phi(x) \in \mathbb{R}^D` whose products are, or approximate, a kernel's values.

    Called on a sample (n, d), a map gives its features (n, D): a NumPy array for NumPy input, a tensor in the graph
    for a tensor. A map is fitted once, on a sample of both domains, and is constant from then on; `fingerprint` tells
    whether two maps are the same.

    Internally the features are split, :math:`\phi(x) = f(x) + o`, with a constant `offset`. It changes no covariance
    and no difference of means, and without it small differences between samples keep their digits in float32.
    """

    KINDS: ClassVar[dict[str, type[FeatureMap]]] = {}
    kernel: str
    """Name of the kernel."""
    bandwidth: float | None
    """Sigma squared in the units of the data; None where the kernel has none."""
    centre: Tensor
    """What is subtracted from every sample, (d,), float64."""
    dtype: torch.dtype
    """What the features are computed in."""
    columns: tuple[str, ...] | None
    """Names of the columns of the data frame the map was fitted on; None where it was an array."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        FeatureMap.KINDS[cls.__name__] = cls

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Features (n, D) less `offset`, in the precision of the map, of a checked sample (n, d)."""

    @property
    @abstractmethod
    def offset(self) -> Tensor:
        """What `features` leaves out, (D,) or a scalar zero."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that determine the map, by the names of its fields."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The numbers and names that determine the map, by the names of its fields."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features D."""

    def notes(self) -> dict[str, Any]:
        """What is known of the map and does not change its features, by the names of its fields."""
        return {} if self.columns is None else {"columns": list(self.columns)}

    @property
    def is_projection(self) -> bool:
        """Whether the features are the kernel's own, projected on a subspace; only then can an error be certified."""
        return True

    @property
    def n_inputs(self) -> int:
        """Number of columns d of the samples."""
        return len(self.centre)

    @property
    def device(self) -> torch.device:
        """Where the features are computed."""
        return self.centre.device

    def __call__(self, x: Array) -> Array:
        """Features (n, D) of a sample (n, d); the columns of a data frame are found by name, as the map was fitted."""
        order = column_order(self.columns, column_names(x), names=("what the map was fitted on", "x"))
        rows = as_rows(x)
        if rows.shape[1] != self.n_inputs:
            raise ValueError(f"x has {rows.shape[1]} features but the map was fitted on {self.n_inputs}")
        rows = rows if order is None else rows[:, order]
        check_finite("x", rows)
        values = self.features(rows.to(self.device)) + self.offset
        return values if isinstance(x, Tensor) else values.cpu().numpy()

    def __repr__(self) -> str:
        name, bandwidth = type(self).__name__, self.bandwidth
        scale = "" if bandwidth is None else f", bandwidth={bandwidth:.4g}"
        return f"{name}(n_inputs={self.n_inputs}, n_features={self.n_features}, kernel={self.kernel!r}{scale})"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that determines the map; equal for equal maps, on any device and in any precision."""
        digest = hashlib.sha256(to_json([type(self).__name__, SCHEMA, self.settings()]).encode())
        for name, tensor in self.tensors().items():
            values = np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype="<f8")
            digest.update(f"{name}{values.shape}".encode())
            digest.update(values.tobytes())
        return digest.hexdigest()[:32]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """The same map on another device, or computing in another precision; the fingerprint is the same.

        Parameters
        ----------
        device : device, optional
        dtype : {torch.float64, torch.float32}, optional

        Returns
        -------
        FeatureMap
        """
        dtype = dtype or self.dtype
        if dtype not in (torch.float64, torch.float32) or (dtype, self.dtype) == (torch.float64, torch.float32):
            raise ValueError(
                f"dtype={dtype} is not accepted for a map in {self.dtype}; accepted are torch.float64 and "
                "torch.float32, and what float32 has lost does not come back"
            )
        tensors = {name: tensor.to(device) for name, tensor in self._in_dtype(dtype).items()}
        copy: Self = replace(self, dtype=dtype, **tensors)  # type: ignore[type-var]
        copy.__dict__["fingerprint"] = self.fingerprint
        return copy

    def _in_dtype(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors as a map in this precision holds them; what places the sample stays in float64."""
        return self.tensors()

    def save(self, path: str | Path) -> Path:
        """Write the map into a safetensors file, whole or not at all.

        Parameters
        ----------
        path : path

        Returns
        -------
        Path
        """
        if self.dtype != torch.float64:
            raise ValueError(f"this is a copy of the map in {self.dtype}; save the map it was made from")
        settings = {"kind": type(self).__name__, "fingerprint": self.fingerprint, **self.settings(), **self.notes()}
        return write_tensors(path, self.tensors(), settings, content=CONTENT, schema=SCHEMA)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a map that `save` wrote; nothing in the file is run.

        Parameters
        ----------
        path : path

        Returns
        -------
        FeatureMap
            Of the class it was saved from.
        """
        tensors, settings = read_tensors(path, content=CONTENT, schema=SCHEMA)
        kind, fingerprint = settings.pop("kind", None), settings.pop("fingerprint", None)
        found = FeatureMap.KINDS.get(str(kind))
        if found is None or not issubclass(found, cls):
            raise ValueError(f"{str(path)!r} holds a {kind}; accepted is a {cls.__name__}")
        try:
            if "columns" in settings:  # JSON has no tuples
                settings["columns"] = tuple(settings["columns"])
            loaded = found(**tensors, **settings)
        except TypeError as error:
            raise ValueError(f"{str(path)!r} does not hold what a {kind} needs ({error})") from error
        if loaded.fingerprint != fingerprint:
            raise ValueError(f"{str(path)!r} is damaged: its fingerprint does not belong to its content")
        return loaded


def as_rows(x: Array) -> Tensor:
    """Read a sample (n, d), or a vector as one column, in the floating-point precision it has."""
    if isinstance(x, Tensor):
        rows = x
    else:
        refuse_masked("x", x)
        array = np.asarray(x)
        # float32 stays float32, so that a memory-mapped chunk is not copied; all else is read as by the metrics.
        rows = as_tensor(array) if array.dtype in (np.float32, np.float64) else numpy_to_tensor("x", x)
    check_real("x", rows)
    rows = rows.unsqueeze(1) if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise ValueError(f"x is a {describe(x)}; accepted is an array (n_samples, n_features)")
    return rows if rows.is_floating_point() else rows.to(torch.get_default_dtype())


def pool(xs: Array, xt: Array | None) -> Tensor:
    """The sample a map is fitted on, both domains together, (n + m, d) in float64; without gradient."""
    pair = as_feature_pair(xs, xs if xt is None else xt)
    return torch.cat(pair if xt is not None else pair[:1]).detach().double()


def pooled_columns(xs: Array, xt: Array | None) -> tuple[str, ...] | None:
    """Names of the columns of `pool`: those of the first sample, in whose order the second's are."""
    return column_names(xs) or column_names(xt)


def place(x: Tensor, centre: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
    """Samples (n, d) about a centre (d,), float64, and in units of 1 / factor.

    The centre may be large beside the differences, so it is never rounded to float32: there it is subtracted in two
    parts.
    """
    if x.dtype == dtype == torch.float32:
        high = centre.float()
        return (x - high).sub_((centre - high).float()).mul_(factor)
    return (x - centre).mul_(factor).to(dtype)


def mean_row(pooled: Tensor) -> Tensor:
    """The mean (d,) of a sample, less its rounding: constant features are at zero from it."""
    centre, scale = common_frame(pooled)
    return centre * scale
