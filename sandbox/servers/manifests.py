"""Manifests that the sandbox applies before windowbox starts: CustomResourceDefinitions and RBAC."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import yaml

from sandbox import shipped
from sandbox.servers.apiserver import ApiServer
from windowbox.errors import Unreachable
from windowbox.rights import rbac, webhookconfigurations

SYSTEM_NAMESPACE = "windowbox-system"
"""For windowbox's own objects, such as the Lease of the heartbeat."""
CLOUDS_SECRET = "clouds"
"""There: the kubeconfig of the cluster where machines of clouds run."""

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where there is one: it reads the definitions ten times as fast."""

_PATIENCE = 60


def secret(namespace: str, name: str, texts: Mapping[str, str], type: str = "") -> dict[str, Any]:
    """A Secret with these texts."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        **({"type": type} if type else {}),
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()},
    }


def apply_all(api: ApiServer) -> None:
    """Create or update the namespace, the rights and the kinds. Idempotent."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    api.apply_object(namespace)
    webhooks = rbac.for_webhooks(SYSTEM_NAMESPACE)
    # The owner of a sandbox created its Secrets, so roles may read them in all namespaces.
    for made in [*rbac.manifests(everywhere=True), *rbac.for_runner(), *webhooks]:
        api.apply_object(made)
    texts = [path.read_text() for path in sorted(shipped.CRDS.glob("*.yaml"))]
    define(api, *(one for text in texts for one in yaml.load_all(text, _LOADER) if one))


def remove_webhooks(api: ApiServer, *, garden: bool) -> None:
    """Remove the webhooks that no process answers: those of a seed, or those of a garden."""
    for resource in webhookconfigurations.RESOURCES.values():
        for names in webhookconfigurations.COMPONENTS:
            if (names == webhookconfigurations.GARDEN) is garden:
                selected = f"fieldSelector=metadata.name%3D{names.prefixed}"
                api.request("DELETE", f"{resource.path()}?{selected}").close()


def define(api: ApiServer, *manifests: dict[str, Any]) -> None:
    """Create or update CustomResourceDefinitions, and wait until the API server serves them all."""
    names = [manifest["metadata"]["name"] for manifest in manifests]
    for name, manifest in zip(names, manifests, strict=True):
        api.apply(f"{_CRDS}/{name}", manifest)
    for name in names:
        for event in api.events(f"{_CRDS}?fieldSelector=metadata.name={name}", seconds=_PATIENCE):
            # A definition just created has `conditions: null`.
            conditions = (event["object"].get("status") or {}).get("conditions") or []
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                break
        else:
            raise Unreachable(f"the API server does not serve {name} after {_PATIENCE} seconds")
