"""Models of timm without their classifier, where timm is installed."""

from __future__ import annotations

from typing import Any

from torch import nn

from bures.networks._preprocessing import Preprocessing
from bures.networks._weights import ALLOW_DOWNLOAD, StrPath, fit_weights, read_weights

__all__ = ["timm_model"]


def timm_model(name: str, weights: StrPath | None, *, download: bool) -> tuple[nn.Module, int, Preprocessing]:
    """A timm model up to its classifier, the width of its output and its preprocessing."""
    timm = _import_timm(name)
    if not timm.is_model(name):
        close = timm.list_models(f"*{name}*")[:5]
        hint = f"; did you mean {', '.join(repr(f'timm:{other}') for other in close)}?" if close else ""
        raise ValueError(f"name='timm:{name}' is unknown to timm {timm.__version__}{hint}")
    if weights == "default" and not download:
        raise ValueError(
            f"weights='default' for 'timm:{name}' are on the Hugging Face hub; {ALLOW_DOWNLOAD}, or give the path of a "
            "local file as weights"
        )
    model = timm.create_model(name, pretrained=weights == "default", num_classes=0)
    if weights is not None and weights != "default":
        classifier = model.pretrained_cfg.get("classifier") or ()
        names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
        source = f"weights={str(weights)!r} for 'timm:{name}'"
        fit_weights(model, read_weights(weights), source=source, ignore=tuple(f"{part}." for part in names))
    config = timm.data.resolve_model_data_config(model)
    out_features = getattr(model, "head_hidden_size", None) or model.num_features
    return model, int(out_features), Preprocessing(config["mean"], config["std"], int(config["input_size"][-1]))


def _import_timm(name: str) -> Any:
    try:
        import timm
        import timm.data
    except ImportError as error:
        raise ImportError(
            f"name='timm:{name}' needs the package timm, which could not be imported ({error}); "
            "install it with: pip install 'bures[timm]'"
        ) from error
    return timm
