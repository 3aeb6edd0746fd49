"""The sums of one domain: updated in chunks, merged, reduced over processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import torch

from bures.arrays import Array, check_choice, check_count, check_positive
from bures.columns import check_same_columns, column_names, column_order
from bures.feature_maps import FeatureMap
from bures.moments._chunks import Chunk, read_chunk
from bures.moments._scatter import Scatter, block_rows, scatter_of
from bures.tensor_files import check_schema

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["LOADED", "SCHEMA", "MomentSums"]

SCHEMA = 1
PRECISIONS = {"float64": torch.float64, "mixed": torch.float32}
FEW_SAMPLES = 8
"""Up to so many samples per feature, products are formed in float64 in ``"mixed"`` too.

A small sample has directions without any spread. Products in float32 would fill these with rounding, and its square
root counts in a distance. In a long stream the first few thousand samples cost nothing.
"""
LOADED = ""  # for the name of a stream: moments from a file may be of any
COUNTS = ("n_samples", "n_weighted", "n_chunks")


class MomentSums:
    """What `ConditionalMoments` is made of, without files and distances; its parameters are described there."""

    def __init__(
        self,
        feature_map: FeatureMap,
        n_classes: int,
        *,
        labels: Literal["hard", "soft"] = "hard",
        label_map: FeatureMap | None = None,
        precision: Literal["float64", "mixed"] = "float64",
        decay: float | None = None,
    ) -> None:
        if not isinstance(feature_map, FeatureMap):
            raise TypeError(
                f"feature_map is a {type(feature_map).__name__}; accepted is a fitted map, such as NystroemMap.fit(...)"
            )
        check_choice("labels", labels, ("hard", "soft"))
        check_choice("precision", precision, tuple(PRECISIONS))
        if decay is not None and check_positive("decay", decay) > 1:
            raise ValueError(f"decay={decay!r} is out of range; accepted are numbers from 0 to 1, or None")
        n_classes = self.n_classes = check_count("n_classes", n_classes)
        if label_map is not None and (labels == "hard" or label_map.n_inputs != n_classes):
            raise ValueError(
                f"label_map takes {label_map.n_inputs} columns, beside labels={labels!r} and n_classes={n_classes}; "
                "accepted is a map of the probabilities of all classes, for labels='soft'"
            )
        self.feature_map, self.label_map = feature_map, label_map
        self.labels, self.precision, self.decay = labels, precision, decay
        self.compute_map = feature_map.to(dtype=PRECISIONS[precision])
        self._label_map = None if label_map is None else label_map.to(feature_map.device)
        n_labels = n_classes + (0 if label_map is None else label_map.n_features)
        self.scatter = Scatter.zeros(self.compute_map.n_features, n_labels, feature_map.device)
        self.n_samples, self.n_weighted, self.n_chunks = 0, 0, 0
        self.columns = feature_map.columns  # names of the features, where a table has been read: the map's or the first
        self._stream: str | None = None  # the file that the samples are of, where they are of one

    @property
    def n_features(self) -> int:
        """Number of features D; in ``"mixed"``, those of the map that float32 can tell from noise."""
        return self.compute_map.n_features

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return float(self.scatter.weight)

    @property
    def class_weight(self) -> Any:
        """Sum of the weights in each class, a NumPy array (K,)."""
        return (self.scatter.weight * self.scatter.mean_y[: self.n_classes]).cpu().numpy()

    @property
    def label_columns(self) -> slice:
        """Which columns of the sums are the label features: behind the class memberships, or these themselves."""
        return slice(0 if self.label_map is None else self.n_classes, None)

    @property
    def nbytes(self) -> int:
        """Bytes of the sums: what a file holds, a merge sends and a reduction over processes moves."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.scatter.tensors().values())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_samples={self.n_samples}, n_classes={self.n_classes}, "
            f"n_features={self.n_features}, labels={self.labels!r}, precision={self.precision!r})"
        )

    # ------------------------------------------------------------------------------------------------- accumulating

    def update(self, x: Array, y: Array, sample_weight: Array | None = None) -> Self:
        """Add a chunk of any size; chunks of some thousand rows are the fastest.

        Parameters
        ----------
        x : array (c, d)
            Samples, moved to the device of the map. The columns of a data frame are put into the order of the table
            that the map was fitted on, or else of the first.
        y : array (c,) or (c, K)
            Their labels.
        sample_weight : array (c,), optional
            Non-negative weights; a sample of weight two counts as two.

        Returns
        -------
        ConditionalMoments
            These moments. A chunk without rows changes nothing and is not counted.
        """
        columns = column_names(x)
        first = "the first table" if self.feature_map.columns is None else "the table the map was fitted on"
        order = column_order(self.columns, columns, names=(first, "this one"))
        chunk = read_chunk(
            x, y, sample_weight, order, feature_map=self.feature_map, n_classes=self.n_classes, labels=self.labels,
            number=self.n_chunks, first_row=self.n_samples,
        )  # fmt: skip
        if not len(chunk):
            return self
        with torch.no_grad(), torch.autocast(device_type=chunk.x.device.type, enabled=False):
            sums = self._sums_of(chunk)
        if not sums.is_finite():
            raise ValueError(
                f"chunk {self.n_chunks}, rows {self.n_samples} to {self.n_samples + len(chunk) - 1} of the stream: the "
                f"products of the features overflow in precision={self.precision!r}; divide x by a constant"
            )
        if self.decay is not None:
            self.scatter.decay(self.decay)
        self.scatter.absorb(sums)
        self.n_samples += len(chunk)
        self.n_weighted += len(chunk) if chunk.weights is None else int((chunk.weights > 0).sum())
        self.n_chunks += 1
        self.columns = self.columns or columns
        return self

    def _sums_of(self, chunk: Chunk) -> Scatter:
        few = self.n_samples + len(chunk) <= FEW_SAMPLES * self.n_features

        def features(rows: slice) -> torch.Tensor:
            values = self.compute_map.features(chunk.x[rows])
            return values.double() if few else values

        def labels(rows: slice) -> torch.Tensor:
            y = chunk.y[rows]
            return y if self._label_map is None else torch.cat([y, self._label_map.features(y)], dim=1)

        return scatter_of(
            features, labels, chunk.weights, len(chunk), len(self.scatter.mean_y),
            block_rows(self.n_features, chunk.x.device),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ merging

    def merge(self, other: Self) -> Self:
        """Add the samples of other moments to these, in place; `+` makes new moments.

        Parameters
        ----------
        other : ConditionalMoments
            With the same map, classes, kind of labels and precision.

        Returns
        -------
        ConditionalMoments
            These moments.
        """
        if not isinstance(other, MomentSums):
            raise TypeError(f"other is a {type(other).__name__}; accepted are ConditionalMoments")
        theirs = other.description()
        for name, value in self.description().items():
            if theirs[name] != value:
                raise ValueError(
                    f"these moments have {name}={value!r}, the others {theirs[name]!r}; they cannot be merged"
                )
        check_same_columns(self.columns, other.columns, names=("the table of these moments", "that of the others"))
        self.columns = self.columns or other.columns
        if other.n_samples:
            self._stream = None
        moved = Scatter(**{name: tensor.to(self.scatter.xx) for name, tensor in other.scatter.tensors().items()})
        self.scatter.absorb(moved)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, MomentSums):
            return NotImplemented
        return self.copy().merge(other)

    def copy(self) -> Self:
        """Moments of the same samples that share no sums with these.

        Returns
        -------
        ConditionalMoments
        """
        twin = self._like()
        twin.scatter = self.scatter.copy()
        for name in COUNTS:
            setattr(twin, name, getattr(self, name))
        twin.columns = self.columns
        return twin

    def _like(self) -> Self:
        return type(self)(
            self.feature_map, self.n_classes, labels=self.labels, label_map=self.label_map,
            precision=self.precision, decay=self.decay,
        )  # fmt: skip

    def all_reduce(self, group: ProcessGroup | None = None) -> Self:
        """Sum over the processes of a `torch.distributed` group, in place: each then holds the moments of all samples.

        Call it once, when the streams have ended; a second call would count every sample once for each process.

        Parameters
        ----------
        group : ProcessGroup, optional
            The default group where None.

        Returns
        -------
        ConditionalMoments
            These moments.
        """
        from bures.moments._reduce import check_same, reduce_scatter

        self.columns = check_same(self.description(), self.columns, group)
        counts = reduce_scatter(self.scatter, tuple(getattr(self, name) for name in COUNTS), group)
        for name, count in zip(COUNTS, counts, strict=True):
            setattr(self, name, count)
        return self

    # ------------------------------------------------------------------------------------------------------- saving

    def description(self) -> dict[str, Any]:
        """What two moments must share to be merged."""
        return {
            "feature_map": self.feature_map.fingerprint,
            "n_classes": self.n_classes,
            "labels": self.labels,
            "label_map": None if self.label_map is None else self.label_map.fingerprint,
            "precision": self.precision,
        }

    def state_dict(self) -> dict[str, Any]:
        """The sums as tensors, and beside them the counts, what they belong to, and the version of this format.

        Returns
        -------
        dict
        """
        state: dict[str, Any] = {name: tensor.clone() for name, tensor in self.scatter.tensors().items()}
        state |= {name: getattr(self, name) for name in COUNTS}
        columns = None if self.columns is None else list(self.columns)
        return state | self.description() | {"decay": self.decay, "columns": columns, "schema": SCHEMA}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; these moments must have its map, classes, kind of labels and precision.

        Parameters
        ----------
        state : dict
            What `state_dict` returned.
        """
        check_schema("the state", state.get("schema"), SCHEMA)
        for name, value in self.description().items():
            if state.get(name) != value:
                raise ValueError(f"the state has {name}={state.get(name)!r}, these moments {value!r}")
        columns = tuple(state["columns"]) if state.get("columns") else None
        check_same_columns(self.feature_map.columns, columns, names=("the table of the map", "that of the state"))
        own = self.scatter.tensors()
        for name, tensor in own.items():
            if name not in state or state[name].shape != tensor.shape:
                raise ValueError(f"the state has no {name} of shape {tuple(tensor.shape)}")
        self.scatter = Scatter(**{name: state[name].to(tensor, copy=True) for name, tensor in own.items()})
        for name in COUNTS:
            setattr(self, name, int(state[name]))
        self.columns = columns or self.feature_map.columns
        self._stream = LOADED
