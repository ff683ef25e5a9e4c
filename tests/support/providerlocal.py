"""Gardener's own provider-local and its admission in the garden, as processes that serve a test's cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sandbox import files, processes
from sandbox.children import Child
from sandbox.programs import binaries
from sandbox.servers import controlplane, kubeconfigs
from tests.support import servers
from windowbox.settings.webhooksettings import PrometheusSettings

PROGRAM = "provider-local"
ADMISSION = "admission-local"
_WEBHOOKS = ("controlplane", "shoot", "networkpolicy", "node", "prometheus", "rollout-speedup")
"""Their paths are their names."""
_VERSION = "--gardener-version=v1.150.0"


@contextlib.contextmanager
def provider(folder: Path, kubeconfig: Path, release: str, backups: Path) -> Iterator[None]:
    """All kinds are served but DNSRecords: it looks for their name server at port 53 of a fixed name.

    Its heartbeat is in the namespace `release`, its buckets in `backups`. Its webhooks are off.
    """
    arguments = [
        _VERSION,
        f"--heartbeat-namespace={release}",
        "--disable-controllers=dnsrecord",
        f"--disable-webhooks={','.join(_WEBHOOKS)}",
        f"--backupbucket-local-dir={backups}",
        f"--backupbucket-container-mount-path={backups}",
    ]
    with _running(PROGRAM, folder, kubeconfig, arguments):
        yield


@contextlib.contextmanager
def webhooks(
    folder: Path, kubeconfig: Path, settings: PrometheusSettings | None = None, namespace: str = ""
) -> Iterator[str]:
    """Its webhooks alone; gives their URL, to which the name of each is added.

    The API server asks them; with a namespace, their certificates are in Secrets there.
    """
    settings = settings or PrometheusSettings(remote_write_urls=(), external_labels={})
    labels = ",".join(f"{name}={value}" for name, value in settings.external_labels.items())
    arguments = [
        _VERSION,
        "--heartbeat-namespace=default",
        "--controllers=heartbeat",
        f"--webhook-config-namespace={namespace}",
        *(f"--prometheus-remote-write-url={url}" for url in settings.remote_write_urls),
        *([f"--prometheus-external-labels={labels}"] if labels else []),
    ]
    with _running(PROGRAM, folder, kubeconfig, arguments) as port:
        yield f"https://127.0.0.1:{port}"


@contextlib.contextmanager
def admission(folder: Path, kubeconfig: Path) -> Iterator[str]:
    """The admission in the garden; gives its URL, to which the path of each webhook is added."""
    with _running(ADMISSION, folder, kubeconfig, []) as port:
        yield f"https://127.0.0.1:{port}"


@contextlib.contextmanager
def _running(program: str, folder: Path, kubeconfig: Path, arguments: list[str]) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    inline = folder / "kubeconfig"
    files.write_private(inline, kubeconfigs.inline(kubeconfig))
    health, port = f"127.0.0.1:{processes.free_port()}", processes.free_port()
    command = [
        str(binaries.find(program)),
        f"--kubeconfig={inline}",
        # Where it waits for the Lease of a former process, it does so for 15 s.
        "--leader-election=false",
        f"--health-bind-address={health}",
        "--metrics-bind-address=0",
        "--webhook-config-mode=url",
        f"--webhook-config-url=127.0.0.1:{port}",
        "--webhook-config-server-host=127.0.0.1",
        f"--webhook-config-server-port={port}",
        f"--webhook-config-cert-dir={folder / 'certificates'}",
        *arguments,
    ]
    ready = f"http://{health}/readyz"
    child = Child(program, command, ready=lambda: controlplane.healthy(ready), env={"KUBECONFIG": ""})
    with servers.running(child, folder):
        yield port
