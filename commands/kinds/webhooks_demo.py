"""The demo of webhooks: a kubelet's setting is changed before the API server stores it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from pathlib import Path
from typing import Any

import click

from commands.kinds.demo import Demo, manifests
from sandbox.state import State
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, NAMESPACES, OPERATING_SYSTEM_CONFIGS

SHOOT = "shoot--demo--asked"
"""A namespace of its own: webhooks are asked about those with this label."""

_LABELS = {"shoot.gardener.cloud/provider": "local"}
_MUTATED = {"provider.extensions.gardener.cloud/mutated-by-controlplane-webhook": "true"}
_NAME = "kubelet"
_SETTINGS = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: true\n"
_PATIENCE = 60.0


async def show(kubeconfig: Path, state: State) -> None:
    """Create an OperatingSystemConfig, and show what was stored. Idempotent: all is deleted at the end."""
    click.echo("\nThe configuration of a kubelet, which a webhook changes before it is stored")
    if not state.options.admits:
        click.echo("  left out, as no process answers webhooks: windowbox up --admits 1")
        return
    async with kube.from_file(kubeconfig) as cluster:
        demo = Demo(cluster)
        for manifest in manifests("shoot.yaml", SHOOT):
            if manifest["kind"] == "Namespace":
                manifest["metadata"]["labels"] |= _LABELS
            await demo.apply(manifest)
        took, stored = await _stored(cluster)
        span = click.style(f"{took * 1000:.0f} ms", fg="green")
        click.echo(f"  OperatingSystemConfig {SHOOT}/{_NAME}: created and stored in {span}")
        click.echo(f"      asked for failSwapOn: true, stored failSwapOn: {stored}")
        click.echo(f"      windowbox trace operatingsystemconfig {SHOOT}/{_NAME} shows which webhook it was")
        await cluster.delete(OPERATING_SYSTEM_CONFIGS, SHOOT, _NAME)
        await cluster.delete(CLUSTERS, "", SHOOT)
        await cluster.delete(NAMESPACES, "", SHOOT)


async def _stored(cluster: Kube) -> tuple[float, str]:
    """How long it took to create it once the API server asks, and the value that it has."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                began = time.perf_counter()
                with contextlib.suppress(WindowboxError):  # while the Cluster is not known everywhere
                    made = await cluster.create(OPERATING_SYSTEM_CONFIGS, SHOOT, _config())
                    took, value = time.perf_counter() - began, _fail_swap_on(made)
                    if value == "false":
                        return took, value
                await cluster.delete(OPERATING_SYSTEM_CONFIGS, SHOOT, _NAME)
                # The API server does not tell when it has read its configurations.
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise Unreachable("the API server does not ask webhooks: `windowbox doctor` tells more") from None


def _config() -> dict[str, Any]:
    inline = {"encoding": "b64", "data": base64.b64encode(_SETTINGS.encode()).decode()}
    file = {"path": "/var/lib/kubelet/config/kubelet", "permissions": 384, "content": {"inline": inline}}
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {"name": _NAME, "labels": _MUTATED},
        # No worker serves this type: only the webhook is shown.
        "spec": {"type": "shown", "purpose": "reconcile", "files": [file]},
    }


def _fail_swap_on(config: Object) -> str:
    text = base64.b64decode(config.spec["files"][0]["content"]["inline"]["data"]).decode()
    return next(line.split()[1] for line in text.splitlines() if line.startswith("failSwapOn"))
