"""Sets by key."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class Multimap(Generic[K, V]):
    """Sets by key. A key without values is not kept."""

    def __init__(self) -> None:
        self._sets: dict[K, set[V]] = {}

    def __getitem__(self, key: K) -> Set[V]:
        return self._sets.get(key, frozenset())

    def __iter__(self) -> Iterator[K]:
        return iter(self._sets)

    def add(self, key: K, value: V) -> None:
        self._sets.setdefault(key, set()).add(value)

    def discard(self, key: K, value: V) -> None:
        values = self._sets.get(key)
        if values:
            values.discard(value)
            if not values:
                del self._sets[key]
