"""Reads the state of a Shoot from the API servers of the sandbox and of the Shoot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.servers.apiserver import ApiServer, from_kubeconfig
from sandbox.shoots import records, shootmanifests
from sandbox.shoots.chain import Link, Object, Observed, State
from sandbox.shoots.creation import EXTENSIONS, Sandbox
from sandbox.shoots.records import Shoot
from windowbox.errors import Refused, Unreachable
from windowbox.models.extensions import instant

_NAMES = {
    "Infrastructure": shootmanifests.INFRASTRUCTURE,
    "ControlPlane": shootmanifests.CONTROL_PLANE,
    "OperatingSystemConfig": shootmanifests.SYSTEM_CONFIG,
    "Worker": shootmanifests.WORKER,
}
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


def observe(sandbox: Sandbox, shoot: Shoot, membership: Mapping[str, Any] | None) -> Observed:
    """Everything of the Shoot; `membership` is what the bus reports of its cluster."""
    home = f"namespaces/{shoot.technical_id}"
    api, inside = sandbox.api, from_kubeconfig(records.kubeconfig(sandbox.folder, shoot.name))
    extensions = {kind: _items(api, f"{EXTENSIONS}/{home}/{kind.lower()}s") for kind in _NAMES}
    try:
        began = str(api.read(f"{EXTENSIONS}/clusters/{shoot.technical_id}")["metadata"]["creationTimestamp"])
    except Refused:
        began = ""
    step = f"windowbox logs {shoot.child('kube-apiserver')}"
    if records.is_hibernated(sandbox.folder, shoot.name):
        server = Link("API server", State.DONE, f"hibernated: `windowbox shoot wake {shoot.name}`")
    elif inside.ready():
        server = Link("API server", State.DONE, inside.url, None, step)
    else:
        server = Link("API server", State.WAITING, f"{inside.url} does not answer", None, step)
    return Observed(
        technical_id=shoot.technical_id,
        began=instant(began),
        server=server,
        extensions={
            kind: next((one for one in found if one["metadata"]["name"] == _NAMES[kind]), None)
            for kind, found in extensions.items()
        },
        managed=_items(api, f"/apis/resources.gardener.cloud/v1alpha1/{home}/managedresources"),
        membership=membership,
        machines=_items(api, f"/apis/machine.sapcloud.io/v1alpha1/{home}/machines"),
        nodes=_items_inside(inside, "/api/v1/nodes"),
        records=_items(api, f"{EXTENSIONS}/{home}/dnsrecords"),
        services=[
            one for one in _items_inside(inside, "/api/v1/services") if one["spec"]["type"] == "LoadBalancer"
        ],
        webhooks=[
            one
            for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
            for one in _items_inside(inside, f"{_WEBHOOKS}/{kind}")
        ],
    )


def _items(api: ApiServer, path: str) -> list[Object]:
    """The objects there; none if the API server does not know the kind."""
    try:
        return list(api.read(path)["items"])
    except Refused:
        return []


def _items_inside(api: ApiServer, path: str) -> list[Object]:
    """The objects of a Shoot; none if its API server does not answer, which the link `server` shows."""
    try:
        return _items(api, path)
    except Unreachable:
        return []
