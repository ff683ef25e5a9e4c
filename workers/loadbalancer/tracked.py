"""Mappings whose readers learn which keys have changed, so that nobody goes through all of them."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Changes(Generic[K]):
    """The keys that have changed since their reader took them last."""

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}
        self._source: Tracked[K, Any] = Tracked()

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, keys: Iterable[K]) -> None:
        self._keys |= dict.fromkeys(keys)

    def follow(self, source: Tracked[K, Any]) -> None:
        """Learn of the changes of this mapping. If it is another one, all keys of both have changed."""
        if source is not self._source:
            self.add(self._source)
            self._source.readers.discard(self)
            self._source = source
            source.readers.add(self)
            self.add(source)

    @contextlib.contextmanager
    def taken(self) -> Iterator[set[K]]:
        """The keys, for a block that acts on them. If it fails, they stay changed."""
        keys, self._keys = self._keys, {}
        try:
            yield set(keys)
        except BaseException:
            self._keys = keys | self._keys
            raise


class Tracked(Mapping[K, V]):
    """A mapping that tells its readers which keys have changed."""

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items: dict[K, V] = dict(items or {})
        self.readers: weakref.WeakSet[Changes[K]] = weakref.WeakSet()

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def put(self, key: K, value: V | None) -> None:
        """Set a value; None removes it. The same object is no change."""
        self.put_all({key: value})

    def put_all(self, items: Mapping[K, V | None]) -> None:
        """Set many values at once: each reader learns of them at once."""
        changed = [key for key, value in items.items() if self._items.get(key) is not value]
        for key in changed:
            if (value := items[key]) is None:
                del self._items[key]
            else:
                self._items[key] = value
        if changed:
            for reader in self.readers:
                reader.add(changed)

    def changes(self) -> Changes[K]:
        """Those for a new reader, to whom everything is new."""
        reader: Changes[K] = Changes()
        reader.follow(self)
        return reader


LoadBalancers = Tracked[ObjectRef, LoadBalancer]


class MergedSets(Generic[K, V]):
    """The members of many sets together."""

    def __init__(self) -> None:
        self._sets: dict[K, frozenset[V]] = {}
        self._counts: dict[V, int] = {}

    def __contains__(self, member: object) -> bool:
        return member in self._counts

    def __iter__(self) -> Iterator[V]:
        return iter(self._counts)

    def put(self, key: K, members: Iterable[V]) -> frozenset[V]:
        """Replace the set of this key. Returns its former and its new members."""
        before, after = self._sets.get(key, frozenset()), frozenset(members)
        if before == after:
            return after
        self._sets.pop(key, None)
        for member in after:
            self._counts[member] = self._counts.get(member, 0) + 1
        for member in before:
            self._counts[member] -= 1
            if not self._counts[member]:
                del self._counts[member]
        if after:
            self._sets[key] = after
        return before | after
