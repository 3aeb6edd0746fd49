"""Methods by name: functions in the files of this package, marked with `register`, that return a `Method`."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from bures.arrays import check_choice
from bures.methods._method import Method

__all__ = ["MethodInfo", "make_method", "method_info", "method_names", "method_options", "register"]

Factory = Callable[..., Method]

MATCHES = ("nothing", "marginal", "joint", "conditional", "predictions")
SAMPLES = ("any", "small images")


@dataclass(frozen=True)
class MethodInfo:
    """What there is to know of a method before it is used.

    Parameters
    ----------
    name : str
        What the method is called.
    summary : str
        What it does, in one line.
    matches : {"nothing", "marginal", "joint", "conditional", "predictions"}
        What it brings together: P(X), P(X, Y) or P(X|Y) of both domains; "predictions" shapes those of the target
        alone.
    paper : str
        Where it was published, in short.
    cost : str
        What a step costs beyond the network, for n samples of d features in K classes.
    requires : str, optional
        The extra of this package that it needs.
    samples : {"any", "small images"}
        What it can be used with.

    Examples
    --------
    >>> from bures.methods import method_info
    >>> method_info("ckb").matches
    'conditional'
    """

    name: str
    summary: str
    matches: str
    paper: str
    cost: str
    requires: str | None
    samples: str = "any"


_FACTORIES: dict[str, Factory] = {}
_INFOS: dict[str, MethodInfo] = {}


def register(
    name: str,
    *,
    matches: str = "nothing",
    paper: str = "",
    cost: str = "",
    requires: str | None = None,
    samples: str = "any",
) -> Callable[[Factory], Factory]:
    """Make a function that builds a method available under a name; its keyword arguments are the method's options.

    The other arguments are fields of `MethodInfo`; its summary is the first line of the function's docstring, up to
    the formula. A function that is defined again, as by a cell of a notebook, takes the place of its earlier version;
    a name that another method has is an error.
    """
    check_choice("matches", matches, MATCHES)
    check_choice("samples", samples, SAMPLES)

    def add(factory: Factory) -> Factory:
        if not factory.__module__.startswith("bures.methods."):
            _import_methods()  # a name of theirs that was taken would keep all of them from being imported later
        earlier = _FACTORIES.get(name)
        if earlier is not None and _place(earlier) != _place(factory):  # the same place: a cell of a notebook run again
            raise ValueError(f"a method named {name!r} exists already ({earlier.__module__}); choose another name")
        first, _, _ = (inspect.getdoc(factory) or "").partition("\n")
        summary = first.partition(":math:")[0].rstrip(" :,.").replace("`", "")
        _FACTORIES[name] = factory
        _INFOS[name] = MethodInfo(name, summary, matches, paper, cost, requires, samples)
        return factory

    return add


def _place(factory: Factory) -> tuple[str, str]:
    return factory.__module__, getattr(factory, "__qualname__", "")


@cache
def _import_methods() -> None:
    package = import_module("bures.methods")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            import_module(f"bures.methods.{module.name}")


def method_names() -> list[str]:
    """The names of all methods, sorted.

    Examples
    --------
    >>> from bures.methods import method_names
    >>> "ckb" in method_names()
    True
    """
    _import_methods()
    return sorted(_FACTORIES)


def method_info(name: str) -> MethodInfo:
    """What there is to know of a method: paper, what it matches, what it costs and needs.

    Examples
    --------
    >>> from bures.methods import method_info
    >>> method_info("deepjdot").requires
    'ot'
    """
    _factory(name)
    return _INFOS[name]


def method_options(name: str) -> dict[str, Any]:
    """The options of a method with their defaults.

    Examples
    --------
    >>> from bures.methods import method_options
    >>> method_options("entropy")
    {'entropy': 0.5, 'entropy_start': 0.0, 'ramp': 0.0}
    """
    parameters = inspect.signature(_factory(name)).parameters
    return {option: parameter.default for option, parameter in parameters.items()}


def make_method(name: str, **options: Any) -> Method:
    """Build a method by name.

    Parameters
    ----------
    name : str
        One of `method_names`.
    **options
        Options of the method, see `method_options`.

    Examples
    --------
    >>> from bures.methods import make_method
    >>> [term.name for term in make_method("ckb+mmd", weight=0.1).terms]
    ['entropy', 'ckb', 'mmd']
    """
    factory = _factory(name)
    unknown = sorted(set(options) - set(method_options(name)))
    if unknown:
        accepted = ", ".join(method_options(name)) or "none"
        raise ValueError(f"method {name!r} has no option {unknown[0]!r}; accepted are: {accepted}")
    try:
        return factory(**options)
    except (TypeError, ValueError) as error:  # a number that is none or out of range, a name that is none
        given = ", ".join(f"{option}={value!r}" for option, value in options.items())
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"method {name!r} cannot be made with {given}: {error}") from error


def _factory(name: str) -> Factory:
    _import_methods()
    if name not in _FACTORIES:
        raise ValueError(f"method={name!r} is unknown; accepted are {', '.join(map(repr, method_names()))}")
    return _FACTORIES[name]
