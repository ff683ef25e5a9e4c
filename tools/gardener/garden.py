"""Access from this host to the virtual garden, which gardener-operator deploys, and to its Shoots."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
_SHOOT_SERVICE = "kube-apiserver"
_SHOOT_VALIDITY = timedelta(hours=12)


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
    return _cluster_ip(runtime, NAMESPACE, _SERVICE)


def shoot_access(seed: Kubectl, virtual: Kubectl, shoot: Mapping[str, Any], path: Path) -> None:
    """An administrator's kubeconfig for a Shoot, as Gardener issues it, written to `path`.

    Only the landscape's name servers know the Shoot's name, so this one leads to the Service, too.
    """
    request = {
        "apiVersion": "authentication.gardener.cloud/v1alpha1",
        "kind": "AdminKubeconfigRequest",
        "spec": {"expirationSeconds": int(_SHOOT_VALIDITY.total_seconds())},
    }
    meta = shoot["metadata"]
    one = f"namespaces/{meta['namespace']}/shoots/{meta['name']}"
    url = f"/apis/core.gardener.cloud/v1beta1/{one}/adminkubeconfig"
    answer = json.loads(virtual("create", f"--raw={url}", "--filename=-", stdin=json.dumps(request)))
    content = yaml.safe_load(base64.b64decode(answer["status"]["kubeconfig"]))
    service = _cluster_ip(seed, shoot["status"]["technicalID"], _SHOOT_SERVICE)
    for cluster in content["clusters"]:
        cluster["cluster"]["tls-server-name"] = cluster["cluster"]["server"].removeprefix("https://")
        cluster["cluster"]["server"] = f"https://{service}"
    files.write_private(path, yaml.safe_dump(content))


def _cluster_ip(kubectl: Kubectl, namespace: str, service: str) -> str:
    return str(kubectl.get("service", service, f"--namespace={namespace}")["spec"]["clusterIP"])


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
