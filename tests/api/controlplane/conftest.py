"""The tests of a module share a world, in which each has a Shoot of its own."""

from tests.support.sharedworld import nats, shared, world
from tests.support.shortkeys import shortest_keys

__all__ = ["nats", "shared", "shortest_keys", "world"]
