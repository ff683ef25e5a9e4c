"""Machines, nodes and Pods for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from windowbox.models.objects import Object
from workers.machines.machine.machinespecs import Timeouts

NOW = datetime(2026, 8, 21, 10, 0, 0, tzinfo=UTC)
TIMEOUTS = Timeouts(
    creation=1200.0,
    health=600.0,
    drain=7200.0,
    in_place=1200.0,
    evict_retries=360,
    node_conditions=("KernelDeadlock", "ReadonlyFilesystem"),
)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def spelled(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def node(*, taints: Any = (), metadata: Any = None, message: str = "m", **conditions: str) -> Object:
    said = [{"type": k, "status": v, "reason": "R", "message": message} for k, v in conditions.items()]
    head = {"name": "machine-a", "uid": "u", "resourceVersion": "7", **(metadata or {})}
    return Object({"metadata": head, "spec": {"taints": list(taints)}, "status": {"conditions": said}})


def pod(name: str = "p", **parts: Any) -> Object:
    return Object(
        {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {}, "status": {}, **parts}
    )


def waiting(reason: str, message: str = "") -> Object:
    return container({"waiting": {"reason": reason, "message": message}})


def container(state: Any, **more: Any) -> Object:
    status = {"containerStatuses": [{"name": "node", "image": "example/node:1", "state": state, **more}]}
    return pod("machine-a", status=status)


def machine_class(**fields: Any) -> Object:
    body: dict[str, Any] = {
        "metadata": {"name": "small", "namespace": "shoot--l--d"},
        "provider": "local",
        "secretRef": {"name": "userdata"},
        "credentialsSecretRef": {"name": "cloudprovider", "namespace": "shoot--l--d"},
        "providerSpec": {"image": "example/node:1", "namespace": "infra-shoot--l--d"},
        "nodeTemplate": {
            "capacity": {"cpu": "1", "gpu": "0", "memory": "8Gi"},
            "instanceType": "local",
            "region": "local",
            "zone": "0",
        },
    }
    return Object({k: v for k, v in (body | fields).items() if v is not ...})


def machine(name: str = "a", **spec: Any) -> Object:
    body = {"class": {"kind": "MachineClass", "name": "small"}, **spec}
    head = {"name": name, "namespace": "shoot--l--d", "uid": "u-a", "creationTimestamp": spelled(ago(60))}
    return Object({"metadata": head, "spec": body, "status": {}})
