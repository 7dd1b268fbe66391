"""A cache of what was made of tensors, valid while they live and nobody writes to them.

PyG passes the same topology with every batch, and what sampling needs of it (sums of weights, rows
ordered by time) requires a pass over all edges. Writes that torch does not count are not noticed.
The cache does not know what it holds.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from torch import Tensor

_Made = TypeVar("_Made")
_Key: TypeAlias = tuple[tuple[tuple[int, int], ...], Hashable]

MOST: Final = 64


class TensorMemory(threading.local):
    """One cache per thread, because samplers belong to one; keeps the latest `MOST` entries."""

    def __init__(self) -> None:
        self._made: OrderedDict[_Key, tuple[list[weakref.ref[Tensor]], Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def recall(
        self, tensors: Sequence[Tensor | None], rest: Hashable, make: Callable[[], _Made]
    ) -> _Made:
        """Return what `make` returned for these tensors and this `rest`, now or before.

        It must not refer to the tensors themselves, or they would live forever: see `array_of`.
        """
        given = [tensor for tensor in tensors if tensor is not None]
        if any(tensor.is_inference() for tensor in given):
            return make()  # torch does not count writes to these
        key: _Key = (tuple((id(tensor), tensor._version) for tensor in given), rest)
        if key in self._made:
            references, made = self._made[key]
            if all(map(_is, references, given)):
                self._made.move_to_end(key)
                return cast(_Made, made)
        made = make()
        self._made[key] = [weakref.ref(tensor, self._forgetting(key)) for tensor in given], made
        while len(self._made) > MOST:
            self._made.popitem(last=False)
        return made

    def _forgetting(self, key: _Key) -> Callable[[object], None]:
        # The cache of this thread, whichever thread drops the tensor.
        things = self._made

        def forget(_: object) -> None:
            things.pop(key, None)

        return forget


def _is(reference: weakref.ref[Tensor], tensor: Tensor) -> bool:
    return reference() is tensor
