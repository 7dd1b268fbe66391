"""Every public name, and what its docstring says about its arguments."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any, Final

import msgspec

import penstock
import penstock.cluster

# Beside `penstock` itself: what the guides name by its module.
MODULES: Final = {
    "penstock": tuple(name for name in penstock.__all__ if name != "__version__"),
    "penstock.cluster": tuple(penstock.cluster.__all__),
    "penstock.client.dist_calls": ("DistCalls",),
    "penstock.compat.pyg_lib": ("install", "uninstall"),
    "penstock.loader.source.store_dataset": ("StoreDataset",),
    "penstock.sampling": ("NeighborSampler",),
    "penstock.testing": ("NotConforming", "check_position", "check_sampler"),
}
NAMES: Final = [f"{module}.{name}" for module, names in MODULES.items() for name in names]
# Methods that other modules of the package call, and users do not.
INTERNAL: Final = {
    "DistServer.check_holder",
    "DistServer.release",
    "Graph.derived",
    "Graph.check_nodes",
    "Graph.here",
    "Graph.lacking",
    "Graph.own_edges",
    "Graph.own_nodes",
    "Graph.own_split",
    "Graph.prepare",
    "Hub.gone",
    "Hub.open_session",
    "Hub.reach",
    "HubProcess.pause",
    "JoinedHub.pause",
    "NeighborSampler.sample_by_type",
    "Provider.check",
    "RemoteDistDataset.ask",
}

_SECTION: Final = re.compile(r"^(Args|Attributes|Options):\n((?:    .*\n|\n)+)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^    (\*{0,2}\w+)(?: \(.*?\))?: ", re.MULTILINE)


def found(name: str) -> Any:
    """What a name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def methods(thing: Any) -> dict[str, Any]:
    """The public methods of a class that this package defines, by qualified name."""
    if not isinstance(thing, type):
        return {}
    members = inspect.getmembers(thing, inspect.isroutine)
    return {
        method.__qualname__: method
        for name, method in members
        if not name.startswith("_") and getattr(method, "__module__", "").startswith("penstock")
    }


def docstring(thing: Any) -> str:
    """A docstring without its indentation, with an end of line at its end."""
    return (inspect.getdoc(thing) or "") + "\n"


def explained(thing: Any) -> set[str]:
    """The arguments or attributes that a docstring explains."""
    sections = _SECTION.findall(docstring(thing))
    return {entry.lstrip("*") for _, text in sections for entry in _ENTRY.findall(text)}


def arguments(thing: Any) -> set[str]:
    """The names of what can be given to a class or a function."""
    if isinstance(thing, type) and issubclass(thing, msgspec.Struct):
        return set(thing.__struct_fields__)
    if isinstance(thing, type) and thing.__init__ in (Exception.__init__, object.__init__):
        return set()
    parameters = inspect.signature(thing).parameters.values()
    # Keywords of classes are typed: their names and meanings are in `penstock.option_types`.
    of_class = isinstance(thing, type)
    return {
        each.name
        for each in parameters
        if not (of_class and each.kind is inspect.Parameter.VAR_KEYWORD)
    }
