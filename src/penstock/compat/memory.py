"""What was made of tensors, remembered while these live and nobody writes to them.

PyG hands the same topology over with every batch; what sampling needs of it, sums of weights or
rows in the order of time, takes a look at every edge. What is written by other means than torch's
is not noticed. Knows nothing of what is remembered.
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
    """Of each thread its own, because samplers belong to one; the latest `MOST` things."""

    def __init__(self) -> None:
        self._made: OrderedDict[_Key, tuple[list[weakref.ref[Tensor]], Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def recall(
        self, tensors: Sequence[Tensor | None], rest: Hashable, make: Callable[[], _Made]
    ) -> _Made:
        """What `make` gave for these tensors and this `rest`, now or before.

        It must not refer to the tensors themselves, or they would live for ever: see `array_of`.
        """
        given = [tensor for tensor in tensors if tensor is not None]
        if any(tensor.is_inference() for tensor in given):
            return make()  # nobody counts what is written to these
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
        # This thread's, wherever the tensor dies.
        things = self._made

        def forget(_: object) -> None:
            things.pop(key, None)

        return forget


def _is(reference: weakref.ref[Tensor], tensor: Tensor) -> bool:
    return reference() is tensor
