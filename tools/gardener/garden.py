"""Access to the virtual garden, which gardener-operator deploys, from this host."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from sandbox import files
from tools.gardener.kubectl import Kubectl
from windowbox.secretsmanager import generation
from windowbox.secretsmanager.configs import Certificate, Usage
from windowbox.secretsmanager.contents import CA_CERTIFICATE, CERTIFICATE, KEY

NAMESPACE = "garden"
"""Of gardener-operator and the virtual garden's Pods in the runtime cluster."""
HOST = "api.virtual-garden.local.gardener.cloud"
_SERVICE = "virtual-garden-kube-apiserver"
_VALIDITY = timedelta(days=30)


def kubeconfig(folder: Path) -> Path:
    """Where the administrator's kubeconfig of the landscape in `folder` lies."""
    return folder / "garden.kubeconfig"


def access(runtime: Kubectl, path: Path) -> Kubectl:
    """An administrator's kubeconfig, written to `path`.

    It needs no name server, so it leads to the Service: the gateway serves requests to names only.
    """
    authority = runtime.secret(NAMESPACE, "name=ca")
    signer = runtime.secret(NAMESPACE, "name=ca-client")
    wanted = Certificate(
        "windowbox", "windowbox", "ca-client", Usage.CLIENT, ("system:masters",), validity=_VALIDITY,
        elliptic=True,
    )  # fmt: skip
    client = generation.certificate(wanted, signer, datetime.now(UTC))
    cluster = {
        "server": f"https://{address(runtime)}",
        "tls-server-name": HOST,
        "certificate-authority-data": _encoded(authority[CA_CERTIFICATE]),
    }
    user = {
        "client-certificate-data": _encoded(client[CERTIFICATE]),
        "client-key-data": _encoded(client[KEY]),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "garden",
        "clusters": [{"name": "garden", "cluster": cluster}],
        "users": [{"name": "garden", "user": user}],
        "contexts": [{"name": "garden", "context": {"cluster": "garden", "user": "garden"}}],
    }
    files.write_private(path, yaml.safe_dump(content))
    return Kubectl(path)


def address(runtime: Kubectl) -> str:
    """The address of the virtual garden's API server; this host and all Pods have a route to it."""
    return str(runtime.get("service", _SERVICE, f"--namespace={NAMESPACE}")["spec"]["clusterIP"])


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
