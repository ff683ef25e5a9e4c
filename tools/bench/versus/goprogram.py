"""Gardener's own provider-local, run in a sandbox in place of windowbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sandbox import files, processes
from sandbox.programs import binaries
from sandbox.servers import certificates, controlplane, kubeconfigs, zoneserver
from tools.bench.client import until
from tools.bench.world import World
from windowbox.errors import Refused

NAME = "provider-local"
_WEBHOOKS = ("controlplane", "shoot", "networkpolicy", "node", "prometheus", "rollout-speedup")
_UNLIMITED = "--kube-api-qps"
_PATIENCE = 60.0
_RESOLVING = 'mount --bind "$0" /etc/hosts && exec "$@"'
"""The program sends its updates to port 53 of a fixed name; the file that resolves it is seen by it alone."""


def checked(program: Path | None) -> Path:
    """The program, by default that of tests; Refused if it cannot run here, or limits its requests."""
    if sys.platform != "linux" or os.getuid():
        raise Refused("Gardener's provider-local, whose name server has port 53, needs Linux, and root")
    path = program or binaries.find(NAME)
    answer = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=30, check=False)
    if _UNLIMITED not in answer.stdout + answer.stderr:
        raise Refused(
            f"{path} has no {_UNLIMITED}, without which client-go allows it five requests a second: compile "
            f"deploy/binaries/programs/{NAME}; `make setup` does so if {path.parent} is removed"
        )
    return path


@contextlib.asynccontextmanager
async def running(program: Path, here: World) -> AsyncIterator[int]:
    """The program, ready, with all its controllers, five runs each and no webhooks; gives its PID."""
    folder = here.sandbox.folder / NAME
    folder.mkdir(exist_ok=True)
    hosts, kubeconfig = folder / "hosts", folder / "kubeconfig"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 ns.{zoneserver.ZONE}\n")
    api = here.sandbox.api
    user = certificates.client(api.ca, here.sandbox.folder / "pki", NAME, groups=["system:masters"])
    text = kubeconfigs.text(api.url, api.ca, user)
    files.write_private(kubeconfig, text)
    health, webhooks = processes.free_port(), processes.free_port()
    command = [
        "unshare", "--mount", "sh", "-c", _RESOLVING, str(hosts), str(program),
        f"--kubeconfig={kubeconfig}", "--gardener-version=v1.150.0", "--leader-election=false",
        "--heartbeat-namespace=default", f"--health-bind-address=127.0.0.1:{health}",
        "--metrics-bind-address=0", f"--disable-webhooks={','.join(_WEBHOOKS)}",
        "--webhook-config-mode=url", f"--webhook-config-url=127.0.0.1:{webhooks}",
        "--webhook-config-server-host=127.0.0.1", f"--webhook-config-server-port={webhooks}",
        f"--webhook-config-cert-dir={folder / 'certificates'}",
        f"--backupbucket-local-dir={folder}", f"--backupbucket-container-mount-path={folder}",
        # The default of DNSRecords is one at a time, of the others five.
        "--dnsrecord-max-concurrent-reconciles=5", f"{_UNLIMITED}=-1",
    ]  # fmt: skip
    process = processes.start(command, folder / "log")

    async def ready() -> bool:
        if process.poll() is not None:
            return True
        return await asyncio.to_thread(controlplane.healthy, f"http://127.0.0.1:{health}/readyz")

    try:
        await until(ready, _PATIENCE)
        if process.poll() is not None:
            lines = (folder / "log").read_text(errors="replace").splitlines()
            raise Refused(f"{program} ended: {' | '.join(lines[-3:])}")
        yield process.pid
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, _PATIENCE)
