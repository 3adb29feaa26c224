"""Batches as people nest them: dicts, lists, tuples and objects of their own, with tensors in them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .leaf import Leaf


class Hole:
    """Where a leaf stood in a batch.

    Attributes:
        number: Which one.
        mover: An object that moves itself, if that is what stood here.
    """

    def __init__(self, number: int, mover: Any = None) -> None:
        self.number = number
        self.mover = mover


def map_leaves(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The batch with every leaf changed: tensors, `Leaf`s, `Hole`s, and objects that move themselves (`.to`).

    Containers keep their type where it can be made again from changed parts, as torch's pinning does it; those without
    a leaf, strings, numbers, arrays and whatever else is no container stay what they are.
    """
    if isinstance(batch, torch.Tensor | Leaf | Hole | PackedSequence):
        return change(batch)
    if isinstance(batch, str | bytes | type):
        return batch
    if isinstance(batch, Mapping):
        return _mapping(batch, change)
    if isinstance(batch, tuple) or (isinstance(batch, Sequence) and not hasattr(batch, "dtype")):
        return _sequence(batch, change)
    if callable(getattr(batch, "to", None)):
        return change(batch)
    if dataclasses.is_dataclass(batch):
        changed = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # Past __init__ and past frozen: neither must run or refuse again.
            object.__setattr__(changed, field.name, map_leaves(getattr(batch, field.name), change))
        return changed
    return batch


def _mapping(batch: Mapping[Any, Any], change: Callable[[Any], Any]) -> Any:
    values = dict(batch.items())
    parts = {key: map_leaves(value, change) for key, value in values.items()}
    if all(parts[key] is value for key, value in values.items()):
        return batch
    if isinstance(batch, MutableMapping):
        try:  # keeps what else the object knows, as a defaultdict its factory
            changed = copy.copy(batch)
            for key, part in parts.items():  # not update(): a Counter's adds up
                changed[key] = part
            return changed
        except Exception:
            return _made(dict, batch, parts)
    return _made(dict, batch, parts)


def _sequence(batch: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    values = list(batch)
    parts = [map_leaves(value, change) for value in values]
    if all(part is value for part, value in zip(parts, values, strict=True)):
        return batch
    if isinstance(batch, tuple):
        # Past the constructor of a named tuple, which may take other arguments.
        kind: Any = type(batch)
        return kind._make(parts) if hasattr(batch, "_fields") else _made(tuple, batch, parts)
    if isinstance(batch, MutableSequence) and type(batch) is not list:
        try:
            changed = copy.copy(batch)
            for index, part in enumerate(parts):
                changed[index] = part
            return changed
        except Exception:
            return parts
    return _made(list, batch, parts)


def _made(plain: type, like: Any, parts: Any) -> Any:
    """`parts` as the type of `like`, or as the plain type where that can't be made from parts."""
    if type(like) is plain:
        return plain(parts)
    try:
        return type(like)(parts)
    except Exception:
        return plain(parts)
