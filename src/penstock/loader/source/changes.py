"""Show in batches what users changed in their data after a loader was made, as PyG does.

The graph stays as it was shared: its edges, and the attributes used for sampling, as in PyG.
Attributes that were written to, replaced, added or removed since are cut out of the user's data in
this process, batch by batch. Writes that torch does not count (NumPy's, and those through `.data`)
are not noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torch import Tensor

from penstock.loader.pyg.template import Nodes, Row, store_of
from penstock.sampling.names import Owner

log = logging.getLogger(__name__)

# Batches have their own number of nodes and their own edges.
OF_THE_GRAPH: Final = ("edge_index", "num_nodes", "adj_t")


class Storage(Protocol):
    """One of the stores of PyG's data, as `store`; its name in a batch is `owner`."""

    @property
    def store(self) -> Any: ...

    @property
    def label(self) -> str: ...

    @property
    def owner(self) -> Owner: ...

    def row_of(self, name: str, value: Any) -> Row | None:
        """Return the attribute if it has a row per node or edge; None: it belongs to the whole."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """An attribute as it was. `writes` tells whether a copied tensor was written to since."""

    value: Any
    writes: tuple[int, bool] | None

    def is_still(self, value: Any) -> bool:
        return value is self.value and (self.writes is None or self.writes == _writes(value))


class Changes:
    """Notices what has changed since it was made, and shows it in batches.

    `copied` are the attributes that were copied, by owner and name: for these, writes count.
    """

    def __init__(self, stores: Iterable[Storage], copied: Collection[tuple[Owner, str]]) -> None:
        self._then = [(found, _known(found, copied)) for found in stores]
        self._told: set[tuple[str, str]] = set()

    def show(self, data: Any, nodes: Nodes) -> None:
        """Make a batch of these nodes show the user's data as they are now."""
        for found, then in self._then:
            now = found.store
            for name, value in now.items():
                known = then.get(name)
                if (known is None or not known.is_still(value)) and name not in OF_THE_GRAPH:
                    self._show(found, then, name, value, data, nodes)
            for name in then:
                if name in now or name in OF_THE_GRAPH:
                    continue
                if name in (store := store_of(data, found.owner)):
                    del store[name]

    def _show(
        self,
        found: Storage,
        then: Collection[str],
        name: str,
        value: Any,
        data: Any,
        nodes: Nodes,
    ) -> None:
        row, store = found.row_of(name, value), store_of(data, found.owner)
        if row is None:
            store[name] = value
            return
        if row.of_edges and "e_id" in then:
            raise RuntimeError(
                f"{found.label}.{name} has changed since this loader was made, and cannot be told "
                "by edge, since the data have an e_id of their own: make another loader"
            )
        ids = store.get("e_id") if row.of_edges else nodes.get(str(row.owner))
        if ids is not None:
            store[name] = row.cut(ids)
            self._tell(found.label, name)

    def _tell(self, label: str, name: str) -> None:
        if (label, name) not in self._told:
            self._told.add((label, name))
            log.warning(
                "%s.%s has changed since its loader was made: batches show it, but its rows are "
                "cut in this process, not by workers. Make loaders after such changes",
                label,
                name,
            )


def _known(found: Storage, copied: Collection[tuple[Owner, str]]) -> dict[str, _Known]:
    return {
        name: _Known(value, _writes(value) if _is_copied(found, name, value, copied) else None)
        for name, value in found.store.items()
    }


def _is_copied(
    found: Storage, name: str, value: Any, copied: Collection[tuple[Owner, str]]
) -> bool:
    row = found.row_of(name, value)
    return row is not None and (row.owner, name) in copied


def _writes(value: Any) -> tuple[int, bool] | None:
    """Return torch's write counter of a tensor, and whether it requires gradients."""
    if not isinstance(value, Tensor) or value.is_inference():
        return None
    return value._version, value.requires_grad
