"""Parts of a batch by their names or places."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

from ...errors import ConfigError

Key: TypeAlias = str | int


def part(batch: Any, key: Key) -> Any:
    """What lies there.

    Args:
        batch: A mapping, a tuple or list, or an object with fields.
        key: A key of a mapping, a place in a tuple or list, or the name of a field.

    Raises:
        ConfigError: there is no such part.
    """
    try:
        if isinstance(batch, Mapping):
            return batch[key]
        if isinstance(key, int) and isinstance(batch, tuple | list):
            return batch[key]
        if isinstance(key, str) and (not isinstance(batch, tuple | list) or key in getattr(batch, "_fields", ())):
            return getattr(batch, key)  # a tuple's own methods, such as index, are no parts
    except (KeyError, IndexError, AttributeError):
        pass
    raise ConfigError(f"the batch has no part {key!r}; {_words(batch)}.")


def with_parts(batch: Any, changes: Mapping[Key, Any]) -> Any:
    """The batch with other parts in those places; the batch itself is not changed."""
    if isinstance(batch, Mapping):
        changed: Any = copy.copy(batch) if hasattr(batch, "__setitem__") else dict(batch)
        for key, value in changes.items():  # not update(): a Counter's adds up
            changed[key] = value
        return changed
    if isinstance(batch, tuple | list):
        names = getattr(batch, "_fields", ())
        parts = list(batch)
        for key, value in changes.items():
            parts[names.index(key) if isinstance(key, str) else key] = value
        return batch._make(parts) if names else type(batch)(parts)  # type: ignore[union-attr]
    changed = copy.copy(batch)
    for key, value in changes.items():
        object.__setattr__(changed, str(key), value)  # past frozen
    return changed


def _words(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"it has {', '.join(map(repr, batch)) or 'none'}"
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return f"it has {', '.join(batch._fields)}"
    if isinstance(batch, tuple | list):
        return f"it is a {type(batch).__name__} of {len(batch)}"
    if dataclasses.is_dataclass(batch):
        return f"it has {', '.join(field.name for field in dataclasses.fields(batch))}"
    return f"it is a {type(batch).__name__}, and a dict, a tuple, a list or an object with fields is needed"
