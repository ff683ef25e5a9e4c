"""The children of a sandbox that simulate nodes: kwok and the node simulator."""

from __future__ import annotations

import os
import socket
import sys
from ipaddress import IPv4Network
from pathlib import Path

from sandbox import files
from sandbox.children import Child
from sandbox.servers.apiserver import ApiServer, is_ready
from sandbox.simulated import kubelets, nodes
from sandbox.simulated.openports import PLAYED, PROXY_HEALTH
from windowbox.errors import Refused
from windowbox.models.refs import NODES

_LEASE_SECONDS = 20
"""Renewed after a quarter of that: long before the controllers believe that a node is lost."""
_ROOT = Path(__file__).parents[2]


def network(port: int) -> str:
    """A loopback subnet derived from a port of the sandbox, which no other sandbox has."""
    return f"127.{port >> 8}.{port & 255}.0/24"


def kwok(program: Path, kubeconfig: Path, api: ApiServer, count: int, pods: IPv4Network) -> Child:
    """Simulates the kubelets; ready when all `count` simulated Nodes are.

    No traffic reaches `pods`: the node simulator answers for all Pods.
    """
    stages = kubeconfig.parent / "kwok.yaml"
    paths = [NODES.path(name=name) for name in nodes.names(count)]
    files.write(stages, kubelets.configuration())
    return Child(
        "kwok",
        [
            str(program), f"--kubeconfig={kubeconfig}", f"--cidr={pods[1]}/{pods.prefixlen}",
            f"--manage-nodes-with-annotation-selector={PLAYED}=fake", "--manage-all-nodes=false",
            f"--node-lease-duration-seconds={_LEASE_SECONDS}",
            f"--config={stages}",
        ],
        ready=lambda: all(is_ready(api.find(path, timeout=2)) for path in paths),
    )  # fmt: skip


def node_simulator(kubeconfig: Path, count: int, network: str) -> Child:
    """Registers the Nodes and simulates their network; ready when every node answers."""
    addresses = nodes.addresses(network, count)
    if foreign := [address for address in addresses if not can_listen(address)]:
        raise Refused(
            f"simulated nodes cannot listen on {', '.join(foreign)}: "
            f"let the addresses be this machine's, `sudo ifconfig lo0 alias {foreign[0]}` on macOS"
        )
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]

    def ready() -> bool:
        try:
            for address in addresses:
                socket.create_connection((address, PROXY_HEALTH), timeout=1).close()
        except OSError:
            return False
        return True

    return Child(
        "node-simulator",
        [
            sys.executable, "-m", "sandbox.simulated",
            f"--kubeconfig={kubeconfig}", f"--nodes={count}", f"--network={network}",
        ],
        ready=ready,
        env={"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


def can_listen(address: str) -> bool:
    """Is it an address of this machine? On Linux all of 127.0.0.0/8 is, on macOS only 127.0.0.1."""
    with socket.socket() as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
        return True
