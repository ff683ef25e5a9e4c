"""Kubeconfigs that name files, and self-contained ones with certificates and keys inline."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from sandbox.servers import manifests
from sandbox.servers.certificates import Pair

_PATHS = ("certificate-authority", "client-certificate", "client-key")


def text(url: str, ca: Pair, user: Pair | str) -> str:
    """A kubeconfig for the user of a certificate, referred to by its path, or of a bearer token."""
    if isinstance(user, Pair):
        credentials = {"client-certificate": str(user.certificate), "client-key": str(user.key)}
    else:
        credentials = {"token": user}
    cluster = {"server": url, "certificate-authority": str(ca.certificate)}
    context = {"cluster": "windowbox", "user": "windowbox", "namespace": "default"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "windowbox",
        "clusters": [{"name": "windowbox", "cluster": cluster}],
        "users": [{"name": "windowbox", "user": credentials}],
        "contexts": [{"name": "windowbox", "context": context}],
    }
    return yaml.safe_dump(content, sort_keys=False)


def secret(namespace: str, kubeconfig: str) -> str:
    """The manifest of the provider Secret of a Shoot."""
    return str(yaml.safe_dump(manifests.secret(namespace, "cloudprovider", {"kubeconfig": kubeconfig})))


def inline(kubeconfig: Path) -> str:
    """The kubeconfig with the content of the files that it names."""
    content = yaml.safe_load(kubeconfig.read_text())
    sections = [entry["cluster"] for entry in content["clusters"]]
    sections += [entry["user"] for entry in content["users"]]
    for section in sections:
        for name in _PATHS:
            if name in section:
                section[f"{name}-data"] = base64.b64encode(Path(section.pop(name)).read_bytes()).decode()
    return str(yaml.safe_dump(content))


def without_credentials(kubeconfig: Path) -> str:
    """A kubeconfig with the address and the authority of the API server, and no user."""
    content = yaml.safe_load(inline(kubeconfig))
    for user in content["users"]:
        user["user"] = {}
    return str(yaml.safe_dump(content))
