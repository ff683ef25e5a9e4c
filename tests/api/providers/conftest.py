"""Tests share a world by module, in which each has a Shoot of its own."""

from tests.support.sharedworld import nats, shared, world

__all__ = ["nats", "shared", "world"]
