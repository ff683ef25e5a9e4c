"""The processes of a Shoot's control plane, as children of the sandbox."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from sandbox import files, roles
from sandbox.children import Child
from sandbox.nodes import routes
from sandbox.nodes.hostresources import HostResources
from sandbox.programs import binaries
from sandbox.servers import controlplane, ranges, resourcemanager
from sandbox.servers.clusternetwork import ClusterNetwork
from sandbox.servers.ranges import Ranges
from sandbox.shoots import contents, records
from sandbox.shoots.hostagent import Config, NodeConfig
from sandbox.shoots.records import Shoot

_ROOT = Path(__file__).parents[2]
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
    files.write_private(
        records.kubeconfig(sandbox, shoot.name), controlplane.kubeconfig_text(api.url, api.ca, api.user)
    )
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
    return [[_named(shoot, child) for child in stage] for stage in found]


def shared(sandbox: Path) -> list[list[Child]]:
    """What all Shoots have in common: ManagedResources of class `seed` stay in the cluster of the sandbox."""
    operator = roles.kubeconfig(sandbox, "operator")
    folder = sandbox / "resource-manager"
    return [[resourcemanager.child(folder, operator, operator, resourcemanager.SEED)]]


def shoot_ranges(sandbox: Path, shoot: Shoot) -> Ranges:
    """Its Services and Pods have ranges that nobody else on this machine has."""
    return ranges.kept(records.folder(sandbox, shoot.name), routes.known() if routes.possible() else [])


def _named(shoot: Shoot, child: Child) -> Child:
    return dataclasses.replace(child, name=shoot.child(child.name))


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
        env={"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"},
    )
