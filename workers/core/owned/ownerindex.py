"""The owner index: finds the owners of an object by its cluster and namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.refs import ObjectRef, Resource
from workers.core.lifecycle.actuators import Run, shoot_of
from workers.core.lifecycle.world import World

INFRASTRUCTURE = "infra-"
"""Prefix of the namespaces of Shoots in provider clusters."""


def infrastructure_namespace(technical_id: str) -> str:
    return INFRASTRUCTURE + technical_id


def machine_ip_pool(technical_id: str, family: str, zone: str = "") -> str:
    """The Calico IPPool for the machines of a Shoot, for one IP family, and in clouds for one zone."""
    in_zone = f".{zone}" if zone else ""
    return f"shoot-machine-pods-{technical_id}{in_zone}-{family.lower()}"


def machine_namespace(run: Run) -> str:
    """The namespace of the run's Shoot in its provider cluster."""
    return infrastructure_namespace(shoot_of(run).technical_id)


class NamespaceKey(NamedTuple):
    cluster: str
    namespace: str


class OwnerIndex:
    """The objects of one kind, by namespace and by Shoot, from the bus."""

    def __init__(self, bus: Bus, world: World, resource: Resource) -> None:
        self._world = world
        self._view: View[NamespaceKey] = View(
            bus,
            resource.id,
            lambda ref, _: NamespaceKey(ref.cluster, ref.namespace),
            index=lambda home: home,
        )

    async def run(self) -> None:
        """Follow the bus, for ever."""
        await self._view.run()

    async def complete(self) -> None:
        """Wait until all existing objects have been read."""
        await self._view.complete.wait()

    def in_namespace(self, cluster: str, namespace: str) -> list[ObjectRef]:
        return self._view.refs(NamespaceKey(cluster, namespace))

    def of_shoot(self, technical_id: str) -> Iterator[ObjectRef]:
        """The objects of the Shoot with this technical id, in any cluster."""
        for shoot in self._world.shoots.refs(technical_id):
            yield from self.in_namespace(shoot.cluster, shoot.name)

    def of_machine_namespace(self, infrastructure_namespace: str) -> Iterator[ObjectRef]:
        """The objects of the Shoot with this namespace in a provider cluster."""
        if infrastructure_namespace.startswith(INFRASTRUCTURE):
            yield from self.of_shoot(infrastructure_namespace.removeprefix(INFRASTRUCTURE))
