"""The children of a sandbox, in the order in which they can start."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from sandbox import processes, roles
from sandbox.children import Child
from sandbox.machines import image
from sandbox.nodes import nodechildren
from sandbox.nodes.hostresources import HostResources
from sandbox.options import Options
from sandbox.programs import binaries
from sandbox.progress import Progress
from sandbox.roles import Surroundings
from sandbox.servers import busserver, controlplane, manifests, zoneserver
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.controlplane import Identities
from sandbox.servers.ranges import UNROUTED, ClusterNetwork
from sandbox.shoots import records
from sandbox.simulated import simulatedchildren as simulated
from windowbox.errors import Malformed

logger = logging.getLogger(__name__)

PROGRAMS = ("nats-server", "etcd", "kube-apiserver", "kube-controller-manager", "named")
SIMULATED_PROGRAMS = ("kwok", "kube-scheduler")
_SERVER_PORTS = (
    "etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "named", "webhooks", "garden-webhooks",
)  # fmt: skip


def role_processes(options: Options) -> list[tuple[str, str]]:
    """The role and name of each of windowbox's processes."""
    counts = {
        "runner": options.runners,
        "watcher": options.watchers,
        "worker": options.workers,
        "patcher": options.patchers,
        "admit": options.admits,
        "admission": options.garden_admits,
    }
    return [(role, f"{role}-{i}") for role, count in counts.items() for i in range(1, count + 1)]


def choose_ports(options: Options, kept: dict[str, int]) -> dict[str, int]:
    """A port for every server: the chosen one, else the last one if still free, else any."""
    scheduler = ["kube-scheduler"] if options.nodes or options.simulated_nodes else []
    names = [
        *busserver.port_names(options.nats_servers),
        *_SERVER_PORTS,
        *scheduler,
        *(name for _, name in role_processes(options)),
    ]
    _check(options.ports, names)
    ports = dict(options.ports)  # even if taken: the server reports the error
    for name in names:
        port = ports.get(name) or kept.get(name)
        while name not in ports and (port is None or port in ports.values() or not processes.is_free(port)):
            port = processes.free_port()
        assert port is not None
        ports[name] = port
    return ports


def stages(
    folder: Path,
    options: Options,
    ports: dict[str, int],
    network: ClusterNetwork = UNROUTED,
    resources: HostResources | None = None,
) -> list[list[Child]]:
    """The children in stages: each stage needs the former ones. Writes the children's configuration.

    `network` is what the API server can connect to, `resources` holds the nodes' resources, if there are any.
    """
    pki = folder / "pki"
    identity = controlplane.identities(pki, resources.host if resources else controlplane.LOOPBACK, network)
    api = controlplane.api(identity, ports["kube-apiserver"])
    around = Surroundings(
        folder=folder,
        api=api,
        bus=busserver.urls(options.nats_servers, ports),
        replicas=options.nats_servers,
        passwords=busserver.passwords(folder / "nats" / "passwords.json"),
        dns_port=ports["named"],
        dns_key=zoneserver.kept_key(dns_key_file(folder)) if options.dns_key else None,
        dns_ownership=options.dns_ownership,
        prefixes=options.addresses or _addresses(ports, network),
        plan=resources.plan if resources else None,
        webhooks=ports["webhooks"],
        garden_webhooks=ports["garden-webhooks"],
        second_calls=max(options.admits, options.garden_admits) > 1,
        webhook_spread=options.webhook_spread,
    )
    roles.backups(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    roles.write_kubeconfigs(folder, api)
    roles.write_settings(around, "operator", "operator", None)
    apiserver = controlplane.apiserver(
        binaries.find("kube-apiserver"), identity, ports["kube-apiserver"], ports["etcd"],
        [
            f"--token-auth-file={roles.token_file(folder)}",
            *(controlplane.audit_arguments(folder) if options.audit else []), *options.apiserver_arguments,
        ],
    )  # fmt: skip
    nodes = _nodes(folder, resources, api, pki) if resources else [[], [], []]
    return [
        [*_storage(folder, options, ports, around), *nodes[0]],
        [dataclasses.replace(apiserver, then=lambda: _fill(api, resources, options)), *nodes[1]],
        [
            *_controllers(identity, pki, ports, with_nodes=bool(resources or options.simulated_nodes)),
            *_simulated(folder, options, ports, api, network),
            *(roles.process(around, role, name, ports[name]) for role, name in role_processes(options)),
            *nodes[2],
        ],
    ]


def dns_key_file(folder: Path) -> Path:
    return folder / "dns.key"


def _fill(api: ApiServer, resources: HostResources | None, options: Options) -> None:
    """Apply what has to exist in the cluster before its users start."""
    manifests.apply_all(api)
    for count, garden in ((options.admits, False), (options.garden_admits, True)):
        if not count:
            manifests.remove_webhooks(api, garden=garden)
    if resources:
        resources.admit(api)


def _addresses(ports: dict[str, int], network: ClusterNetwork) -> tuple[str, ...]:
    # No other sandbox has the port, so no other has this part of the loopback addresses.
    port = ports["nats-server"]
    v4 = f"127.{port >> 8}.{port & 255}.0/24"
    # Of IPv6 there is only one loopback address; others can be added where routes can.
    return (v4, str(network.ranges.balancers)) if network.routed and network.v6 else (v4,)


def _storage(folder: Path, options: Options, ports: dict[str, int], around: Surroundings) -> list[Child]:
    name_server = binaries.unconfined(binaries.find("named"))
    return [
        controlplane.etcd(binaries.find("etcd"), folder / "etcd", ports["etcd"], ports["etcd-peer"]),
        *busserver.nats_servers(
            binaries.find("nats-server"), folder, options.nats_servers, ports, around.passwords,
            options.sync_interval,
        ),
        zoneserver.named(name_server, folder / "named", ports["named"], around.dns_key),
    ]  # fmt: skip


def _controllers(identity: Identities, pki: Path, ports: dict[str, int], *, with_nodes: bool) -> list[Child]:
    found = [
        controlplane.controllers(
            binaries.find("kube-controller-manager"), identity, pki / "controllers.kubeconfig",
            ports["kube-controller-manager"], ports["kube-apiserver"], nodes=with_nodes,
        )
    ]  # fmt: skip
    if with_nodes:
        found.append(
            controlplane.scheduler(
                binaries.find("kube-scheduler"), identity, pki / "scheduler.kubeconfig",
                ports["kube-scheduler"], ports["kube-apiserver"],
            )
        )  # fmt: skip
    return found


def _nodes(folder: Path, resources: HostResources, api: ApiServer, pki: Path) -> list[list[Child]]:
    """Processes of nodes that need nothing, those that need them, and those that need the API server."""
    archives = resources.write(api, pki)
    if records.names(folder):  # machines that were there when the sandbox ended start again with it
        archives.append(image.archive(Progress(logger.info))[0])
    return [
        [nodechildren.first(place) for place in resources.places],
        [nodechildren.containerd(place, archives) for place in resources.places],
        [
            child
            for place in resources.places
            for child in (nodechildren.kubelet(place, api), nodechildren.kube_proxy(place))
        ],
    ]


def _simulated(
    folder: Path, options: Options, ports: dict[str, int], api: ApiServer, network: ClusterNetwork
) -> list[Child]:
    if not (count := options.simulated_nodes):
        return []
    kubeconfig = roles.kubeconfig(folder, "operator")
    addresses = simulated.network(ports["kube-controller-manager"])
    return [
        simulated.kwok(binaries.find("kwok"), kubeconfig, api, count, network.ranges.pods),
        simulated.node_simulator(kubeconfig, count, addresses),
    ]


def _check(fixed: dict[str, int], names: list[str]) -> None:
    for name, port in fixed.items():
        if name not in names:
            raise Malformed(
                f"port {port} for {name!r}: there is no such process; there are {', '.join(names)}"
            )
        if list(fixed.values()).count(port) > 1:
            raise Malformed(f"port {port} for {name!r}: another process has it, too; give each its own")
