"""The four objects that a Bastion consists of."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.refs import NETWORK_POLICIES, PODS, SECRETS, SERVICES
from workers.core.owned.manifests import Manifest, manifest

_PREFIX = "bastion-"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST = 63
_SSH = "ssh"
_PORT = 22
_MANAGED = {"app.kubernetes.io/managed-by": "provider-local"}
"""By which the policy is among those that are watched."""
_DNS_APPS = ("kube-dns", "node-local-dns")
_DNS_ADDRESSES = ("169.254.20.10/32", "fd30:1319:f1e:230b::1/128")


@dataclass(frozen=True)
class Site:
    """Where the objects are, and how all of them are called."""

    namespace: str
    bastion: str

    @property
    def name(self) -> str:
        return _PREFIX + self.bastion

    @property
    def labels(self) -> dict[str, str]:
        return {"app": "bastion", "bastion": self.bastion}


def bastion(name: str) -> str:
    """The Bastion that has objects of this name; nothing if it is nobody's."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else ""


def site(namespace: str, bastion: str) -> Site:
    found = Site(namespace, bastion)
    if len(found.name) > _LONGEST or not _LABEL.fullmatch(bastion):
        raise Malformed(
            f"metadata.name is {bastion!r}, which a Service {found.name!r} cannot be made of: use lower-case "
            f"letters, digits and dashes, {_LONGEST - len(_PREFIX)} at most"
        )
    return found


def secret(at: Site, user_data: str) -> Manifest:
    """`user_data` in base64, as it stands in the Bastion."""
    try:
        content = base64.b64decode(user_data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed("spec.userData is not base64: encode the script") from error
    data = {"userdata": base64.b64encode(content).decode()}
    return manifest(SECRETS, at.name, at.namespace, labels=at.labels, data=data)


def pod(at: Site, image: str) -> Manifest:
    container = {
        "name": "machine",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "ports": [{"name": _SSH, "containerPort": _PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": _SSH}, "periodSeconds": 2},
        "volumeMounts": [{"name": "userdata", "mountPath": "/etc/machine"}],
    }
    spec = {
        "automountServiceAccountToken": False,  # a machine has none, and this one is open to the outside
        "terminationGracePeriodSeconds": 2,  # systemd does not end when it is asked to in the usual way
        "containers": [container],
        "volumes": [{"name": "userdata", "secret": {"secretName": at.name, "defaultMode": 0o777}}],
    }
    return manifest(PODS, at.name, at.namespace, labels=at.labels, spec=spec)


def service(at: Site, sources: Sequence[str]) -> Manifest:
    port = {"name": _SSH, "port": _PORT, "protocol": "TCP", "targetPort": _PORT, "appProtocol": _SSH}
    spec = {
        "type": "LoadBalancer",
        "selector": at.labels,
        "ports": [port],
        "loadBalancerSourceRanges": list(sources),
    }
    return manifest(SERVICES, at.name, at.namespace, labels=at.labels, spec=spec)


def policy(at: Site) -> Manifest:
    """Who may connect is decided by the load balancer: behind it, everybody has its address."""
    kube_system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    dns: list[dict[str, Any]] = [
        {**kube_system, "podSelector": {"matchExpressions": [_one_of("k8s-app", app)]}} for app in _DNS_APPS
    ]
    dns += [{"ipBlock": {"cidr": cidr}} for cidr in _DNS_ADDRESSES]
    dns_ports = [{"protocol": protocol, "port": port} for port in (53, 8053) for protocol in ("UDP", "TCP")]
    ssh = [{"protocol": "TCP", "port": _PORT}]
    spec = {
        "podSelector": {"matchLabels": at.labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": ssh}],
        "egress": [
            {"to": dns, "ports": dns_ports},
            {"to": [{"podSelector": {"matchLabels": {"app": "machine"}}}], "ports": ssh},
        ],
    }
    labels = at.labels | _MANAGED
    return manifest(NETWORK_POLICIES, at.name, at.namespace, labels=labels, spec=spec)


def _one_of(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}
