"""Gardener's resource manager, which applies ManagedResources, as a child process."""

from __future__ import annotations

from pathlib import Path

import yaml

from sandbox import files, processes
from sandbox.children import Child
from sandbox.programs import binaries
from sandbox.servers import certificates, controlplane, kubeconfigs
from sandbox.servers.controlplane import LOOPBACK

PROGRAM = "gardener-resource-manager"
SEED = "seed"
_SYNC = "1m"
_HEALTH_SYNC = "15s"
"""The shortest interval that the program accepts. Events of applied objects are handled at once."""


def child(
    folder: Path, source: Path, target: Path, class_: str = "", *, namespaces: tuple[str, ...] = ()
) -> Child:
    """Applies the ManagedResources of a class in one cluster to another; the class of Shoots is empty.

    Without `namespaces`, it reads all. The configuration, with both kubeconfigs, is written to `folder`.
    """
    port = processes.free_port()
    path = folder / f"{PROGRAM}.yaml"
    serving = folder / "serving"
    # Its webhook server starts even without webhooks.
    certificates.server(certificates.authority(serving / "ca"), serving, "tls", ["localhost"])
    configuration = {
        "apiVersion": "resourcemanager.config.gardener.cloud/v1alpha1",
        "kind": "ResourceManagerConfiguration",
        "sourceClientConnection": {
            **_connection(folder / "source.kubeconfig", source),
            "namespaces": list(namespaces),
        },
        "targetClientConnection": _connection(folder / "target.kubeconfig", target),
        "leaderElection": {"leaderElect": False},
        "server": {
            "healthProbes": _address(port),
            "metrics": _address(processes.free_port()),
            "webhooks": {**_address(processes.free_port()), "tls": {"serverCertDir": str(serving)}},
        },
        "logFormat": "text",
        "controllers": {
            **({"resourceClass": class_} if class_ else {}),
            "garbageCollector": {"enabled": True, "syncPeriod": _SYNC},
            "health": {"syncPeriod": _HEALTH_SYNC},
            "managedResource": {"syncPeriod": _SYNC},
            # The resource manager of a Shoot also requests tokens for its clients.
            "tokenRequestor": {"enabled": not class_},
        },
    }
    files.write_private(path, yaml.safe_dump(configuration))
    return Child(
        PROGRAM,
        [str(binaries.find(PROGRAM)), f"--config={path}"],
        ready=lambda: controlplane.healthy(f"http://{LOOPBACK}:{port}/readyz"),
        port=port,
        # The program prefers these variables to its configuration.
        env={"KUBECONFIG": "", "TARGET_KUBECONFIG": ""},
    )


def _connection(path: Path, kubeconfig: Path) -> dict[str, str]:
    """The program accepts no kubeconfig that names files."""
    files.write_private(path, kubeconfigs.inline(kubeconfig))
    return {"kubeconfig": str(path)}


def _address(port: int) -> dict[str, str | int]:
    return {"bindAddress": LOOPBACK, "port": port}
