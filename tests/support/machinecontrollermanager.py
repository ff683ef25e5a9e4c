"""Gardener's machine-controller-manager, as a process that serves one namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sandbox import processes
from sandbox.programs import binaries
from tests.support import servers

PROGRAM = "machine-controller-manager"


@contextlib.contextmanager
def manager(folder: Path, kubeconfig: Path, namespace: str) -> Iterator[None]:
    """MachineDeployments and MachineSets of a namespace are served, with nodes in the same cluster."""
    port = processes.free_port()
    command = [
        str(binaries.find(PROGRAM)),
        f"--control-kubeconfig={kubeconfig}",
        # Without a cluster for nodes it panics at the end of a roll-out.
        f"--target-kubeconfig={kubeconfig}",
        f"--namespace={namespace}",
        "--address=127.0.0.1",
        f"--port={port}",
        "--kube-api-qps=100",
        "--kube-api-burst=200",
        "--concurrent-syncs=30",
        "--machine-safety-overshooting-period=1s",
        "--leader-elect=true",
        "--leader-elect-resource-lock=leases",
        "--v=3",
    ]
    server = processes.start(command, folder / f"{PROGRAM}-{namespace}.log")
    try:
        yield
    finally:
        servers.end(server)
