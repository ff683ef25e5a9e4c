"""The children of a sandbox, in the order in which they can start, and variables that lead to its servers."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sandbox import processes, roles
from sandbox.children import Child
from sandbox.machines import image
from sandbox.nodes import nodechildren
from sandbox.nodes.hostresources import HostResources
from sandbox.nodes.nodefiles import Place
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
from sandbox.state import State
from windowbox.errors import Malformed

logger = logging.getLogger(__name__)

PROGRAMS = ("nats-server", "etcd", "kube-apiserver", "kube-controller-manager", "named")
SIMULATED_PROGRAMS = ("kwok", "kube-scheduler")
_NODE = ("kube-controller-manager", "kubelet", "windowbox-echo")
_USES = {"containerd": ("windowbox-echo",), "kubelet": _NODE, "kube-proxy": ("kube-proxy", *_NODE)}
"""What a process needs to become ready, if more than its own program: containerd takes an image with the echo
server; controllers let a kubelet join, whose Node a kube-proxy reads."""
_SERVER_PORTS = (
    "etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "named", "webhooks", "garden-webhooks",
    "page",
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
        "ui": options.uis,
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
    for name, fixed in options.ports.items():
        if name not in names:
            known = ", ".join(names)
            raise Malformed(f"port {fixed} for {name!r}: no process has this name; there are {known}")
        if list(options.ports.values()).count(fixed) > 1:
            raise Malformed(f"port {fixed} for {name!r}: another process has it, too; give each its own")
    ports = dict(options.ports)  # even if taken: the server reports the error
    # Keeping ports keeps kubeconfigs, settings and the addresses of load balancers valid.
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
    around = _surroundings(folder, options, ports, network, resources, identity)
    api = around.api

    audit = controlplane.audit_arguments(folder) if options.audit else []
    apiserver = controlplane.apiserver(
        binaries.find("kube-apiserver"), identity, ports["kube-apiserver"], ports["etcd"],
        [f"--token-auth-file={roles.token_file(folder)}", *audit, *options.apiserver_arguments],
    )  # fmt: skip
    name_server = binaries.unconfined(binaries.find("named"))
    first = [
        controlplane.etcd(binaries.find("etcd"), folder / "etcd", ports["etcd"], ports["etcd-peer"]),
        *busserver.nats_servers(
            binaries.find("nats-server"), folder, options.nats_servers, ports, around.passwords,
            options.sync_interval,
        ),
        zoneserver.named(
            name_server, folder / "named", ports["named"], around.dns_key, *zoneserver.ZONES,
            host=identity.host,
        ),
    ]  # fmt: skip
    second = [dataclasses.replace(apiserver, then=partial(_fill, api, options, resources))]
    third = _clients(folder, options, ports, around, identity, network, with_nodes=resources is not None)
    if resources:
        source = Path(options.shared_from) if options.shared_from else folder / "shared"
        shared = {source / name.strip("/"): name for name in options.shared_folders}
        resources.write(api, pki, options, network.ranges)
        archives = _archives(folder, resources)
        for place in resources.places:
            first.append(nodechildren.first(place, shared))
            second.append(nodechildren.containerd(place, archives))
            third += _joining(place, api, options)
    third += _companions(around, options)
    return [[_awaiting(child, options) for child in stage] for stage in (first, second, third)]


def _fill(api: ApiServer, options: Options, resources: HostResources | None) -> None:
    """Apply what has to exist in the cluster before its users start."""
    manifests.apply_all(api)
    for count, garden in ((options.admits, False), (options.garden_admits, True)):
        if not count:
            manifests.remove_webhooks(api, garden=garden)
    if resources:
        resources.admit(api)


def _archives(folder: Path, resources: HostResources) -> Callable[[], list[Path]]:
    """Writes the archives of images when the first node asks: a program in them may be awaited."""
    lock, written = threading.Lock(), list[Path]()

    def archives() -> list[Path]:
        with lock:
            if not written:
                written.extend(resources.archives())
                if records.names(folder):  # machines that ran when the sandbox ended start again with it
                    written.append(image.archive(Progress(logger.info))[0])
            return written

    return archives


def _joining(place: Place, api: ApiServer, options: Options) -> list[Child]:
    """What makes a machine a node."""
    proxy = nodechildren.kube_proxy(place, _program("kube-proxy", options))
    return [nodechildren.kubelet(place, api, _program("kubelet", options)), proxy]


def _companions(around: Surroundings, options: Options) -> list[Child]:
    """The processes that were asked for beside those of the sandbox."""
    variables = {
        **processes.python_environment(),
        "KUBECONFIG": str(roles.kubeconfig(around.folder, "operator")),
        "SANDBOX_FOLDER": str(around.folder),
        "SANDBOX_HOST": str(around.plan.host_v4) if around.plan else controlplane.LOOPBACK,
    }
    return [
        Child(name, list(command), ready=lambda: True, env=variables)
        for name, command in options.companions.items()
    ]


def _program(name: str, options: Options) -> Path:
    """The program, or the place at which an awaited one will be."""
    return binaries.cached(binaries.PROGRAMS[name]) if name in options.awaited else binaries.find(name)


def _awaiting(child: Child, options: Options) -> Child:
    """The child, which does not start before its programs are there."""
    name = child.name.rpartition("/")[2]
    awaited = [one for one in _USES.get(name, (name,)) if one in options.awaited]
    return dataclasses.replace(child, needs=tuple(_program(one, options) for one in awaited))


def variables(folder: Path, state: State) -> dict[str, str]:
    """Environment variables that lead kubectl, nats, dig and windowbox to the sandbox."""
    folder = folder.absolute()
    found = {
        "WINDOWBOX_SANDBOX": state.name,
        "WINDOWBOX_SETTINGS": str(roles.settings_file(folder, "operator")),
        "KUBECONFIG": str(roles.kubeconfig(folder, "operator")),
        "NATS_URL": busserver.urls(state.options.nats_servers, state.ports),
        "NATS_USER": "operator",
        "NATS_PASSWORD": busserver.passwords(folder / "nats" / "passwords.json")["operator"],
        "NATS_MONITOR_URL": f"http://127.0.0.1:{state.ports['nats-monitor']}",
        "DNS_ZONE": zoneserver.ZONE,
        "DNS_SERVER": f"127.0.0.1:{state.ports['named']}",
    }
    for name, child in state.children.items():
        if name.rpartition("-")[0] in roles.COMMANDS:
            found[f"METRICS_{name.upper().replace('-', '_')}"] = f"http://127.0.0.1:{child.port}/metrics"
    if state.options.dns_key:
        found["DNS_KEY_FILE"] = str(dns_key_file(folder))
    return found


def dns_key_file(folder: Path) -> Path:
    return folder / "dns.key"


def _surroundings(
    folder: Path,
    options: Options,
    ports: dict[str, int],
    network: ClusterNetwork,
    resources: HostResources | None,
    identity: Identities,
) -> Surroundings:
    """The settings of windowbox's processes; writes their credentials."""
    # No other sandbox has the port, so no other has this part of the loopback addresses.
    port = ports["nats-server"]
    addresses: tuple[str, ...] = (f"127.{port >> 8}.{port & 255}.0/24",)
    if resources and options.reachable_balancers:
        addresses = (str(resources.plan.balancers_v4),)
    if network.routed and network.v6:
        # IPv6 has only one loopback address; others can be added where routes can.
        addresses += (str(network.ranges.balancers),)
    around = Surroundings(
        folder=folder,
        api=controlplane.api(identity, ports["kube-apiserver"]),
        bus=busserver.urls(options.nats_servers, ports),
        replicas=options.nats_servers,
        passwords=busserver.passwords(folder / "nats" / "passwords.json"),
        dns_port=ports["named"],
        dns_key=zoneserver.kept_key(dns_key_file(folder)) if options.dns_key else None,
        dns_ownership=options.dns_ownership,
        prefixes=options.addresses or addresses,
        plan=resources.plan if resources else None,
        webhooks=ports["webhooks"],
        garden_webhooks=ports["garden-webhooks"],
        page=ports["page"],
        monitor=f"http://127.0.0.1:{ports['nats-monitor']}",
        second_calls=max(options.admits, options.garden_admits) > 1,
        webhook_spread=options.webhook_spread,
        kinds=options.kinds,
    )
    roles.backups(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    roles.write_kubeconfigs(folder, around.api)
    roles.write_settings(around, "operator", "operator", None)
    return around


def _clients(
    folder: Path,
    options: Options,
    ports: dict[str, int],
    around: Surroundings,
    identity: Identities,
    network: ClusterNetwork,
    *,
    with_nodes: bool,
) -> list[Child]:
    """The processes that need the API server: controllers, simulated nodes, windowbox."""
    some_nodes = with_nodes or options.simulated_nodes > 0
    found = [
        controlplane.controllers(
            _program("kube-controller-manager", options), identity, folder / "pki" / "controllers.kubeconfig",
            ports["kube-controller-manager"], ports["kube-apiserver"], nodes=some_nodes,
        )
    ]  # fmt: skip
    if some_nodes:
        found.append(
            controlplane.scheduler(
                _program("kube-scheduler", options), identity, folder / "pki" / "scheduler.kubeconfig",
                ports["kube-scheduler"], ports["kube-apiserver"],
            )
        )  # fmt: skip
    if count := options.simulated_nodes:
        kubeconfig = roles.kubeconfig(folder, "operator")
        pods = around.plan.simulated_pods if around.plan else network.ranges.pods
        addresses = simulated.network(ports["kube-controller-manager"])
        found.append(simulated.kwok(_program("kwok", options), kubeconfig, around.api, count, pods))
        found.append(simulated.node_simulator(kubeconfig, count, addresses))
    return found + [roles.process(around, role, name, ports[name]) for role, name in role_processes(options)]
