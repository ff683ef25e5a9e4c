"""The Secrets by which windowbox, or a cloud-controller-manager, has access to a Shoot.

The token requestor of Gardener's resource manager puts a token into each, beside what we write.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from windowbox.clients.kubernetes import kubeconfigs
from windowbox.errors import Malformed
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import SECRETS
from windowbox.settings.clustersettings import ACCESS_SECRET
from workers.core.owned import manifests
from workers.core.owned.manifests import Manifest
from workers.core.owned.targets import MANAGER, TargetCluster
from workers.kinds.controlplane import controlplanerights
from workers.kinds.controlplane.controlplanesite import Site

CCM_SECRET = f"shoot-access-{controlplanerights.CCM}"
WINDOWBOX_SECRET = ACCESS_SECRET
KEY = "kubeconfig"

_LABELS = {
    "resources.gardener.cloud/purpose": "token-requestor",
    "resources.gardener.cloud/class": "shoot",
}
_ACCOUNT = "serviceaccount.resources.gardener.cloud"


def secret(name: str, namespace: str, account: str) -> Manifest:
    """A Secret that requests a token of a ServiceAccount in kube-system of the Shoot."""
    made = manifests.manifest(SECRETS, name, namespace, labels=_LABELS, type="Opaque")
    made["metadata"]["annotations"] = {
        f"{_ACCOUNT}/name": account,
        f"{_ACCOUNT}/namespace": controlplanerights.SYSTEM,
    }
    return made


async def ensure_ccm(target: TargetCluster, namespace: str) -> None:
    """The Secret that a cloud-controller-manager has mounted."""
    await target.ensure_secret(secret(CCM_SECRET, namespace, controlplanerights.CCM))


async def ensure_windowbox(target: TargetCluster, site: Site) -> bool:
    """Write the Secret with the kubeconfig by which the Shoot joins. False while no API server is known.

    The generic kubeconfig of the namespace names the API server. Without it the Secret has no kubeconfig, and
    the Shoot cannot join.
    """
    namespace = site.namespace

    async def act() -> dict[str, bool]:
        kube = await target.connection.api()
        found = await kube.find(SECRETS, namespace, WINDOWBOX_SECRET)
        generic = await kube.find(SECRETS, namespace, site.generic_kubeconfig)
        made = wanted(namespace, found, generic)
        changed = found is None or manifests.differs(SECRETS, found, made)
        if changed:
            await kube.apply(SECRETS, namespace, WINDOWBOX_SECRET, made, owner=MANAGER)
        return {"changed": changed, "leads": "data" in made}

    request = {"secret": f"{namespace}/{WINDOWBOX_SECRET}", "of": site.generic_kubeconfig}
    answer = await target.recorder.call("access", request, act, effect=True)
    return not isinstance(answer, Mapping) or bool(answer.get("leads"))


def wanted(namespace: str, found: Object | None, generic: Object | None) -> Manifest:
    """The Secret for windowbox, given what is there and the generic kubeconfig of the namespace.

    Optimistic concurrency keeps a token that was written after `found` was read.
    """
    made = secret(WINDOWBOX_SECRET, namespace, controlplanerights.WINDOWBOX)
    former: Mapping[str, Any] = {}
    if found:
        with contextlib.suppress(Malformed):  # a damaged Secret is overwritten
            former = parsed(found)
    newer = kubeconfig(parsed(generic), namespace, former) if generic else None
    if newer is not None and newer != former:
        made["data"] = {KEY: base64.b64encode(yaml.safe_dump(newer).encode()).decode()}
    elif found and (kept := mapping(found.raw.get("data")).get(KEY)):
        # Server-side apply removes fields that we no longer set.
        made["data"] = {KEY: kept}
    if found:
        made["metadata"]["resourceVersion"] = found.resource_version
    return made


def kubeconfig(
    generic: Mapping[str, Any], namespace: str, former: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A kubeconfig for the cluster of the generic one, with the token that the former has.

    None if the generic one names no server.
    """
    clusters = mappings(generic.get("clusters"))
    cluster = dict(mapping(clusters[0].get("cluster"))) if clusters else {}
    if not cluster.get("server"):
        return None
    cluster["server"] = reachable(str(cluster["server"]), namespace)
    users = mappings(former.get("users"))
    token = mapping(users[0].get("user")).get("token") if users else None
    name = namespace
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
    }


def reachable(server: str, namespace: str) -> str:
    """The URL of a Service in `namespace`, for clients in other namespaces."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return server  # the client reports what is wrong with it
    if not host or host == "localhost" or "." in host or ":" in host:
        return server
    return parts._replace(netloc=f"{host}.{namespace}.svc{port}").geturl()


def parsed(secret: Object) -> Mapping[str, Any]:
    """The kubeconfig in a Secret. Malformed if there is none that can be read."""
    what = f"key {KEY} of Secret {secret.namespace}/{secret.name}"
    try:
        text = base64.b64decode(mapping(secret.raw.get("data")).get(KEY) or "", validate=True)
    except (TypeError, binascii.Error) as error:
        raise Malformed(f"{what} is not base64") from error
    return kubeconfigs.parsed(text, what)
