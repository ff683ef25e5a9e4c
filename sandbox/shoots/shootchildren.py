"""The processes of a Shoot's control plane, as children of the sandbox."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox import files, processes, roles
from sandbox.children import Child
from sandbox.nodes import routes
from sandbox.nodes.hostresources import HostResources
from sandbox.programs import binaries
from sandbox.restarter import Restarter
from sandbox.servers import controlplane, kubeconfigs, ranges, resourcemanager
from sandbox.servers.ranges import ClusterNetwork, Ranges
from sandbox.shoots import contents, records
from sandbox.shoots.hostagent import Config, NodeConfig
from sandbox.shoots.records import Shoot
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

SHARED = ""
"""In place of a name: the processes that run while there are Shoots."""

_AUDIENCES = "kubernetes,gardener"
"""As in Gardener, whose resource manager requests tokens for the second one."""


def stages(
    sandbox: Path, shoot: Shoot, etcd_port: int, resources: HostResources, network: ClusterNetwork
) -> list[list[Child]]:
    """The children in stages: each needs the former one. Writes their configuration."""
    pki = records.folder(sandbox, shoot.name) / "pki"
    own = shoot_ranges(sandbox, shoot)
    inside = dataclasses.replace(network, ranges=own, nodes=[*network.nodes, own.pods])
    identity = controlplane.identities(pki, resources.host, inside)
    port = shoot.ports["kube-apiserver"]
    api = controlplane.api(identity, port)
    files.write_private(records.kubeconfig(sandbox, shoot.name), kubeconfigs.text(api.url, api.ca, api.user))
    # Kubelets of machines sign their serving certificates themselves, so these cannot be verified.
    server = controlplane.apiserver(
        binaries.find("kube-apiserver"), identity, port, etcd_port,
        [f"--etcd-prefix={shoot.etcd_prefix}", f"--api-audiences={_AUDIENCES}"], verify_kubelets=False,
    )  # fmt: skip
    controllers = controlplane.controllers(
        binaries.find("kube-controller-manager"), identity, pki / "controllers.kubeconfig",
        shoot.ports["kube-controller-manager"], port, nodes=True, pods=own.pods,
    )  # fmt: skip
    scheduler = controlplane.scheduler(
        binaries.find("kube-scheduler"), identity, pki / "scheduler.kubeconfig",
        shoot.ports["kube-scheduler"], port,
    )  # fmt: skip
    first = dataclasses.replace(
        server,
        before=lambda: routes.close(resources.claim, [own.services_v4, own.services_v6, own.pods]),
        then=lambda: contents.fill(api, str(own.pods)),
    )
    agent = _host_agent(sandbox, shoot, resources)
    manager = resourcemanager.child(
        records.folder(sandbox, shoot.name) / "resource-manager",
        roles.kubeconfig(sandbox, "operator"),
        records.kubeconfig(sandbox, shoot.name),
        namespaces=(shoot.technical_id,),
    )
    found = [[first], [controllers, scheduler, agent, manager]]
    return [[dataclasses.replace(child, name=shoot.child(child.name)) for child in stage] for stage in found]


def shared(sandbox: Path) -> list[list[Child]]:
    """The resource manager of all Shoots: it serves ManagedResources of class `seed`."""
    operator = roles.kubeconfig(sandbox, "operator")
    folder = sandbox / "resource-manager"
    return [[resourcemanager.child(folder, operator, operator, resourcemanager.SEED)]]


def shoot_ranges(sandbox: Path, shoot: Shoot) -> Ranges:
    """Ranges of its Services and Pods, unique on this machine."""
    return ranges.kept(records.folder(sandbox, shoot.name), routes.known() if routes.possible() else [])


def _host_agent(sandbox: Path, shoot: Shoot, resources: HostResources) -> Child:
    own = shoot_ranges(sandbox, shoot)
    config = Config(
        claim=resources.claim.number,
        kubeconfig=str(roles.kubeconfig(sandbox, "operator")),
        shoot_kubeconfig=str(records.kubeconfig(sandbox, shoot.name)),
        namespace=shoot.machines,
        services=str(own.services_v4),
        pods=str(own.pods),
        consoles=str(sandbox / "machines"),
        nodes=[
            NodeConfig(
                namespace=place.namespace,
                address=str(place.node.v4),
                pods=str(place.node.pods_v4),
                logs=str(place.data / "logs"),
            )
            for place in resources.places
        ],
    )
    path = records.folder(sandbox, shoot.name) / "host-agent.json"
    files.write_private(path, json.dumps(dataclasses.asdict(config), indent=2))
    ready = path.with_name("host-agent.ready")
    return Child(
        "host-agent",
        [sys.executable, "-m", "sandbox.shoots.hostagent", str(path)],
        ready=ready.exists,
        before=lambda: ready.unlink(missing_ok=True),
        env=processes.python_environment(),
    )


@dataclass
class Shoots:
    """Follows the records; `look_again` reports a change."""

    sandbox: Path
    stages: Callable[[str], list[list[Child]]]
    """The processes of a Shoot, stage by stage; of `SHARED`, what all Shoots have in common."""
    keep: Callable[[Child], Restarter]
    """A restarter that the state of the sandbox shows."""
    drop: Callable[[str], None]
    """Take the child of this name out of the state again."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def look_again(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Start and end Shoots until cancelled; then end all."""
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    self._changed.clear()
                    # What all Shoots share serves those that are hibernated, too.
                    shared = {SHARED} if records.names(self.sandbox) else set()
                    await self._follow(group, shared | set(records.awake_names(self.sandbox)))
                    await self._changed.wait()
            finally:
                await self._follow(group, set())

    async def _follow(self, group: asyncio.TaskGroup, wanted: set[str]) -> None:
        # Those that could not be prepared are tried again.
        self._running = {name: task for name, task in self._running.items() if not task.done()}
        gone = [self._running.pop(name) for name in self._running.keys() - wanted]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        for name in wanted - self._running.keys():
            self._running[name] = group.create_task(self._live(name), name=f"shoot {name}")

    async def _live(self, name: str) -> None:
        """One Shoot, until cancelled."""
        try:
            stages = [[self.keep(child) for child in stage] for stage in self.stages(name)]
        except (WindowboxError, OSError) as error:
            logger.error("shoot %s: %s", name, error)
            return
        restarters = [restarter for stage in stages for restarter in stage]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(k.run(), name=f"keep:{k.child.name}") for k in restarters]
            try:
                for stage in stages:
                    for restarter in stage:
                        restarter.start()
                    await asyncio.gather(*(restarter.ready() for restarter in stage))
                await asyncio.Event().wait()
            finally:
                # First stopped, then cancelled: a cancelled restarter would leave its state as it was.
                await asyncio.gather(*(restarter.stop() for restarter in restarters))
                for task in tasks:
                    task.cancel()
                for restarter in restarters:
                    self.drop(restarter.child.name)
