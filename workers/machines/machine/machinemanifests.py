"""The objects of a machine: Pod, Service, Secret with user data, bootstrap token in the Shoot. Pure."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, PODS, RUNTIME, SECRETS, SERVICES, ObjectRef
from workers.core.owned.manifests import Manifest, manifest
from workers.core.owned.ownerindex import INFRASTRUCTURE
from workers.machines import names
from workers.machines.machine.machinespecs import MachinePlan

OWNER = "machine.windowbox/owner"
"""Annotation of a Pod: `NAMESPACE/NAME` of its Machine."""
_V4_POOLS = "cni.projectcalico.org/ipv4pools"
_V6_POOLS = "cni.projectcalico.org/ipv6pools"
_ZONE = "topology.kubernetes.io/zone"
_PROBE = "/usr/bin/kubectl --kubeconfig /var/lib/kubelet/kubeconfig-real get no $NODE_NAME"
_CONTAINERD = "/var/lib/containerd"
_ROOT = "root"
"""The volume for everything that has no volume of its own; in a machine Pod those are container images."""
_DATA = "/mnt/volumes"
_TOKEN_TYPE = "bootstrap.kubernetes.io/token"
_EXECUTABLE = 0o500
"""Root alone executes the user data: it holds a bootstrap token."""

_USER_DATA = "userData"
_TOKEN = b"<<BOOTSTRAP_TOKEN>>"
_NAME = b"<<MACHINE_NAME>>"
_SECRET_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 16
_SECRET = re.compile(rf"[a-z0-9]{{{_SECRET_LENGTH}}}")
_LARGEST = 900_000
"""Bytes. A Secret holds a mebibyte, and the placeholders grow when they are filled in."""


def labels(machine: str) -> dict[str, str]:
    return {"app": "machine", "machine": names.short(machine), "machine-provider": "local"}


def pod(plan: MachinePlan, *, docker_socket: bool) -> Manifest:
    """The Pod whose container is the machine."""

    def empty_dir(size: str) -> dict[str, Any]:
        return {"sizeLimit": size} if size else {}

    sizes = {volume.name: volume.size for volume in plan.provider.volumes}
    secret = {"secretName": names.user_data(plan.machine), "defaultMode": _EXECUTABLE}
    socket, modules = {"path": "/var/run/docker.sock", "type": "Socket"}, {"path": "/lib/modules"}
    # Each volume, and where it is mounted.
    mounted: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"name": "userdata", "secret": secret}, {"mountPath": "/etc/machine"}),
        ({"name": "containerd", "emptyDir": empty_dir(sizes.pop(_ROOT, ""))}, {"mountPath": _CONTAINERD}),
        ({"name": "run", "emptyDir": {"medium": "Memory"}}, {"mountPath": "/run"}),
    ]
    if docker_socket:
        mounted.append(({"name": "docker-socket", "hostPath": socket}, {"mountPath": socket["path"]}))
    mounted.append(
        ({"name": "modules", "hostPath": modules}, {"mountPath": modules["path"], "readOnly": True})
    )
    for name, size in sizes.items():
        volume = {"name": f"data-{name}", "emptyDir": empty_dir(size)}
        mounted.append((volume, {"mountPath": f"{_DATA}/{name}"}))
    container: dict[str, Any] = {
        "name": "node",
        "image": plan.provider.image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "vpn-shoot", "containerPort": 30123, "protocol": "TCP"}],
        "readinessProbe": {"exec": {"command": ["sh", "-c", _PROBE]}},
        "volumeMounts": [{"name": volume["name"], **mount} for volume, mount in mounted],
    }
    if plan.provider.resources:
        container["resources"] = {kind: dict(one) for kind, one in plan.provider.resources.items()}
    volumes = [volume for volume, _ in mounted]
    spec: dict[str, Any] = {"dnsPolicy": "Default", "containers": [container], "volumes": volumes}
    if plan.provider.zone:
        spec["nodeSelector"] = {_ZONE: plan.provider.zone}
    made = manifest(PODS, names.pod(plan.machine), plan.namespace, labels=labels(plan.machine), spec=spec)
    pools = {_V4_POOLS: plan.provider.ip_pool_v4, _V6_POOLS: plan.provider.ip_pool_v6}
    made["metadata"]["annotations"] = {OWNER: f"{plan.home}/{plan.machine}"} | {
        name: json.dumps([pool]) for name, pool in pools.items() if pool
    }
    return made


def machine_of(pod: Object) -> ObjectRef | None:
    """The Machine that a Pod was created for; None if it is no machine Pod, or does not name its Machine."""
    if pod.labels.get("machine-provider") != "local" or pod.labels.get("app") != "machine":
        return None
    namespace, _, name = str(pod.annotations.get(OWNER, "")).partition("/")
    if not name:
        # Pods of Gardener's own driver have no owner annotation: their namespace names the Shoot.
        if not pod.namespace.startswith(INFRASTRUCTURE):
            return None
        namespace = pod.namespace.removeprefix(INFRASTRUCTURE)
        name = str(pod.labels.get("machine", ""))
    if not name or names.pod(name) != pod.name:
        return None
    return ObjectRef(RUNTIME, MACHINES.id, namespace, name)


def may_be_of(pod: Object, machine: ObjectRef) -> bool:
    """Whether a Pod with the name of the Machine's Pod may be the Machine's: no other Machine owns it."""
    owner = pod.annotations.get(OWNER)
    return owner is None or owner == f"{machine.namespace}/{machine.name}"


def user_data_secret(plan: MachinePlan, pod_uid: str, content: bytes) -> Manifest:
    data = {"userdata": base64.b64encode(content).decode()}
    owners = [_owner(plan, pod_uid)]
    return manifest(SECRETS, names.user_data(plan.machine), plan.namespace, owners=owners, data=data)


def service(plan: MachinePlan, pod_uid: str) -> Manifest:
    ssh = {"name": "ssh", "port": 22, "protocol": "TCP", "appProtocol": "ssh"}
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # the Pod is ready only when its node has joined
        "selector": labels(plan.machine),
        "ports": [ssh],
    }
    owners, marked = [_owner(plan, pod_uid)], labels(plan.machine)
    return manifest(
        SERVICES, names.pod(plan.machine), plan.namespace, labels=marked, owners=owners, spec=spec
    )


def _owner(plan: MachinePlan, pod_uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": names.pod(plan.machine),
        "uid": pod_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def token_secret(machine: str, token_id: str, secret: str, expires: datetime) -> Manifest:
    """The Secret in the Shoot that makes a bootstrap token valid."""
    data = {
        "description": _token_description(machine),
        "token-id": token_id,
        "token-secret": secret,
        "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": "",
    }
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    return manifest(SECRETS, names.token(token_id), "kube-system", type=_TOKEN_TYPE, data=encoded)


def new_secret() -> str:
    """The secret half of a new bootstrap token."""
    return "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(_SECRET_LENGTH))


def secret_in(token: Object | None, machine: str) -> str | None:
    """The secret half of an existing token; None if it is another Machine's, or not in the form of one.

    It becomes a part of the user data, which root executes: the Shoot's users may write any text there.
    """
    data = token.raw.get("data") if token else None
    if not isinstance(data, Mapping) or _decoded(data.get("description")) != _token_description(machine):
        return None
    found = _decoded(data.get("token-secret"))
    return found if _SECRET.fullmatch(found) else None


def _token_description(machine: str) -> str:
    return f'A bootstrap token for machine "{machine}" generated by MachineControllerManager.'


def _decoded(value: Any) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except ValueError:
        return ""


def user_data(data: Mapping[str, bytes], where: str) -> bytes:
    """The user data in a class's Secret; `where` names the Secret in errors."""
    if _USER_DATA not in data:
        raise Malformed(f"{where} has no key {_USER_DATA!r}: put the user data of the machine there")
    content = data[_USER_DATA]
    if len(content) > _LARGEST:
        raise Malformed(f"{where}: {_USER_DATA} has {len(content)} bytes: {_LARGEST} at most fit a machine")
    return content


def asks_for_token(content: bytes) -> bool:
    return _TOKEN in content or quote(_TOKEN, safe="").encode() in content


def filled(content: bytes, machine: str, token: str | None) -> bytes:
    """The user data for one machine. Without a token, its placeholder stays."""
    for placeholder, value in ((_NAME, machine), (_TOKEN, token)):
        if value is None:
            continue
        if placeholder in content:
            content = content.replace(placeholder, value.encode())
        else:
            # Ignition files hold their contents as data URLs, where placeholders are percent-encoded.
            content = content.replace(quote(placeholder, safe="").encode(), quote(value, safe="").encode())
    return content
