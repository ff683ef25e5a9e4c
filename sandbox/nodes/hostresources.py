"""Host resources of a sandbox's nodes: claimed before they start, removed after they have ended."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox import state as states
from sandbox.nodes import (
    addresses,
    claims,
    images,
    joining,
    leftovers,
    network,
    routes,
    sshimage,
    suitability,
)
from sandbox.nodes import nodefiles as node_files
from sandbox.nodes.addresses import Plan
from sandbox.nodes.claims import Claim
from sandbox.nodes.joining import Token
from sandbox.nodes.nodefiles import Place
from sandbox.options import Options
from sandbox.programs import packages
from sandbox.servers import ranges
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.ranges import Ranges
from windowbox.errors import Missing, Refused

PROGRAMS = ("kubelet", "kube-proxy", "kube-scheduler", "windowbox-echo")
_USUAL = 2


@dataclass(frozen=True)
class HostResources:
    """A claim, a subnet, and the folders of each node."""

    claim: Claim
    plan: Plan
    places: list[Place]
    folder: Path
    token: Token
    """The bootstrap token for nodes that have not joined before."""

    @property
    def host(self) -> str:
        """The address at which nodes reach what runs on this machine."""
        return str(self.plan.host_v4)

    def write(self, api: ApiServer, pki: Path, options: Options, ranges: Ranges) -> None:
        """Write the configuration of all nodes."""
        servers = options.servers or self.host
        for place in self.places:
            node_files.write(place, self.plan, api, pki, self.token, v6=options.pods_v6)
            if options.cluster_dns:
                node_files.use_name_servers(place.data, ranges.name_server, servers)
            if options.registry_port:
                node_files.use_registry(place.data, f"http://{servers}:{options.registry_port}")

    def archives(self) -> list[Path]:
        """Write the archives of the images of every node."""
        return [
            images.write(image, self.folder / "images" / f"{image.name.partition('/')[2]}.tar")
            for image in (*images.images(), *sshimage.found())
        ]

    def admit(self, api: ApiServer) -> None:
        """Create a bootstrap token for nodes that have no certificate yet. Idempotent."""
        joining.bind(api)
        if not all(node_files.joined(place, api.ca) for place in self.places):
            joining.admit(api, self.token)


@contextlib.contextmanager
def opened(folder: Path, options: Options) -> Iterator[HostResources | None]:
    """The host resources of a sandbox whose data is in `folder`; None without nodes."""
    leftovers.clear()
    if not options.nodes:
        yield None
        return
    if reason := impossible(folder):
        raise Missing(f"nodes need {reason}")
    names = addresses.names(options.nodes)
    with claimed(options, names) as (claim, plan):
        data = folder / "nodes"
        shutil.rmtree(data, ignore_errors=True)
        claims.begin(claim)
        try:
            network.build(claim, plan)
            places = [
                Place(
                    node=node,
                    namespace=claim.namespace(node.name),
                    data=data / node.name,
                    run=claim.folder / node.name,
                    credentials=folder / "kubelets" / node.name,
                    plugins=packages.plugins(),
                )
                for node in plan.nodes
            ]
            yield HostResources(claim, plan, places, data, joining.token())
        finally:
            leftovers.clear_one(claim)
            shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def claimed(options: Options, names: tuple[str, ...]) -> Iterator[tuple[Claim, Plan]]:
    """Claim the first free number to whose subnets this host has no routes."""
    parts, taken = list(addresses.parts(options.ranges)), routes.known()
    for number in claims.numbers():
        # Ranges of the user's choice may have fewer parts than there are numbers.
        v4, v6 = parts[number % len(parts)]
        if ranges.overlapping(v4, taken) or ranges.overlapping(v6, taken):
            continue
        with claims.held(number) as claim:
            if claim:
                yield claim, Plan(v4, v6, names)
                return
    raise Refused(f"no addresses for nodes are free in {' and '.join(options.ranges)}")


def impossible(folder: Path | None = None) -> str:
    """What this machine lacks to run real nodes of a sandbox in `folder`; empty if nothing."""
    if reason := unsuited(folder):
        return reason
    if lacking := packages.lacking_for_nodes():
        return f"{', '.join(lacking)}: run `make setup`"
    return ""


def unsuited(folder: Path | None = None) -> str:
    """What this machine lacks and no installation can add; empty if nothing."""
    return suitability.unsuited(suitability.read(folder or states.home()))


def usual() -> int:
    """The default number of nodes."""
    return 0 if unsuited() else _USUAL
