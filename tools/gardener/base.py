"""What a Gardener needs of its sandbox: a registry, a name server, volumes, and a node for each Pod."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import dns.query
import dns.rcode
import dns.tsigkeyring
import dns.update
import yaml

from sandbox import detached, roles, stages
from sandbox.nodes import addresses, claims, network
from sandbox.nodes.addresses import Plan
from sandbox.options import TOGETHER
from sandbox.servers import apiserver, ranges, zoneserver
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.ranges import Ranges
from sandbox.state import State
from tools.gardener import contents, extensions, registry, traffic
from tools.gardener.kubectl import Kubectl, manifest
from windowbox.errors import Refused, Unreachable

PLACE = "sandbox.windowbox/place"
"""The label of nodes: `real`, or `played` by kwok."""
_BACKUPS = "/etc/gardener/local-backupbuckets"
_NAMES = ("registry", "*.registry-cache")
_REGION, _ZONE = "local", "0"
_DRY_RUN = "/api/v1/namespaces/default/pods?dryRun=All"
_PATIENCE = 120


@dataclass(frozen=True)
class Base:
    """A running sandbox, as Gardener's set-up sees it."""

    folder: Path
    state: State
    api: ApiServer
    plan: Plan
    ranges: Ranges

    @property
    def host(self) -> IPv4Address:
        """The address at which nodes and Pods reach this host."""
        return self.plan.host_v4

    @property
    def name_server(self) -> str:
        """The name server of the zones, which Pods reach."""
        return f"{self.host}:{self.state.ports['named']}"

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        return roles.kubeconfig(self.folder, "operator")


def options(nodes: int = 2, played: int = 3) -> dict[str, Any]:
    """The options of a sandbox for Gardener, for `detached.up`."""
    return {
        **TOGETHER,
        "nodes": nodes,
        "simulated_nodes": played,
        "dns_key": False,
        # Webhooks and all other kinds are those of windowbox in Pods.
        "admits": 0,
        "kinds": extensions.HOST_KINDS,
        "cluster_dns": True,
        # The virtual garden's Services have no IPv6.
        "pods_v6": False,
        "reachable_balancers": True,
        "registry_port": registry.PORT,
        "shared_folders": (_BACKUPS,),
        "companions": {name: _companion(name) for name in ("registry", "players")},
    }


def options_beside(first: Base) -> dict[str, Any]:
    """The options of a second sandbox: its registry, name server and backups are those of the first."""
    players = {"players": _companion("players")}
    shared = str(first.folder.absolute() / "shared")
    return options(1, 1) | {"companions": players, "servers": str(first.host), "shared_from": shared}


def prepare(folder: Path, first: Base | None = None) -> Base:
    """Check that no traffic leaves, then bring what Gardener needs, and wait for it. Idempotent.

    `first` is the sandbox beside which this is the second.
    """
    base = find(folder)
    traffic.check(base.state.site, base.plan, base.ranges)
    if first:
        claim, own = (claims.named(one.state.site) for one in (first, base))
        network.join(claim, first.plan, own, base.plan)
    else:
        _name_registry(base)
    _label_nodes(base.api)
    place_pods(base.api)
    kubectl = Kubectl(base.kubeconfig)
    server = {"server": (first or base).name_server, "zones": " ".join(zoneserver.ZONES)}
    kubectl.apply(manifest("coredns", {**server, "address": str(base.ranges.name_server)}))
    kubectl.apply(manifest("storage", {"volumes": str(folder.absolute() / "volumes")}))
    for namespace, name in (("kube-system", "coredns"), ("local-path-storage", "local-path-provisioner")):
        kubectl.wait(f"deployment/{name}", "condition=Available", namespace=namespace)
    return base


def place_pods(api: ApiServer) -> None:
    """Send new Pods to the real nodes if the registry has their images, else to those that kwok plays."""
    place = {"label": PLACE, "escaped": PLACE.replace("/", "~1")}
    for one in yaml.safe_load_all(manifest("placement", {**place, "pattern": contents.pattern()})):
        api.apply_object(one)
    _wait_placing(api)


def find(folder: Path) -> Base:
    """The sandbox that runs in `folder`."""
    state = detached.running(folder)
    api = apiserver.from_kubeconfig(roles.kubeconfig(folder, "operator"))
    host = IPv4Address(api.url.removeprefix("https://").partition(":")[0])
    v4, v6 = next(part for part in addresses.parts(state.options.ranges) if host in part[0])
    plan = Plan(v4, v6, addresses.names(state.options.nodes))
    return Base(folder, state, api, plan, ranges.kept(folder, []))


def _companion(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"tools.gardener.{name}")


def _name_registry(base: Base) -> None:
    """Let the registry's names lead to its address. The zone delegates them, as Gardener's own does."""
    update = dns.update.UpdateMessage(zoneserver.ZONE)
    if base.state.options.dns_key:
        key = zoneserver.kept_key(stages.dns_key_file(base.folder))
        update.use_tsig(dns.tsigkeyring.from_text({key.name: (key.algorithm, key.secret)}))
    update.delete("registry", "NS")
    update.delete("registry-cache", "NS")
    for name in _NAMES:
        update.replace(name, 30, "A", str(base.host))
    answer = dns.query.udp(update, zoneserver.LOOPBACK, timeout=5, port=base.state.ports["named"])
    if answer.rcode() != dns.rcode.NOERROR:
        raise Refused(f"records of the registry: {dns.rcode.to_text(answer.rcode())}")


def _label_nodes(api: ApiServer) -> None:
    """Give all nodes the labels that a cloud gives, and their place."""
    for node in api.read("/api/v1/nodes")["items"]:
        name, played = node["metadata"]["name"], "kwok.x-k8s.io/node" in node["metadata"]["annotations"]
        labels = {
            PLACE: "played" if played else "real",
            "kubernetes.io/arch": node["status"]["nodeInfo"]["architecture"],
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "local",
            "topology.kubernetes.io/region": _REGION,
            "topology.kubernetes.io/zone": _ZONE,
        }
        if played:
            # Its simulator answers at NodePorts itself, instead of the Pods of real nodes.
            labels["node.kubernetes.io/exclude-from-external-load-balancers"] = "true"
        api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})


def _wait_placing(api: ApiServer) -> None:
    """Wait until the API server knows the policy: it places no Pods before."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "placed"},
        "spec": {"containers": [{"name": "placed", "image": "windowbox.local/placed:1"}]},
    }
    limit = time.monotonic() + _PATIENCE
    # Polled: no status tells it.
    while PLACE not in api.create(_DRY_RUN, pod)["spec"].get("nodeSelector", {}):
        if time.monotonic() > limit:
            raise Unreachable(f"the API server does not use the policy for Pods after {_PATIENCE} s")
        time.sleep(0.1)
