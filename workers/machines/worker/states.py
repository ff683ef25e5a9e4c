"""The machines of a Shoot that was handed over by another seed: what its Worker's `status.state` holds."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from windowbox.errors import Malformed
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_SETS, MACHINES, Resource
from workers.core.owned.manifests import Manifest

_LARGEST = 32 * 1024 * 1024
"""Bytes of unpacked state: some thousands of machines. What unpacks to more is a bomb."""
_KEPT = ("name", "annotations", "labels")


@dataclass(frozen=True)
class DeploymentState:
    """What one MachineDeployment had."""

    replicas: int
    sets: tuple[Manifest, ...]
    machines: tuple[Manifest, ...]


def decoded(worker: Object) -> dict[str, DeploymentState]:
    """The state by names of MachineDeployments; those without MachineSets are left out."""
    state = worker.status.get("state")
    if not isinstance(state, Mapping) or not state.get("state"):
        return {}
    content = _unpacked(state["state"])
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _malformed("holds no JSON") from error
    deployments = mapping(mapping(found).get("machineDeployments"))
    states = {name: _deployment(mapping(one), worker.namespace) for name, one in deployments.items()}
    return {name: one for name, one in states.items() if one.sets}


def _unpacked(text: object) -> bytes:
    try:
        packed = base64.b64decode(str(text), validate=True)
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(_LARGEST + 1)
    except (binascii.Error, ValueError, OSError, EOFError, zlib.error) as error:
        raise _malformed("is not base64 of gzip") from error
    if len(content) > _LARGEST:
        raise _malformed(f"unpacks to more than {_LARGEST} bytes")
    return content


def _deployment(state: Mapping[str, Any], namespace: str) -> DeploymentState:
    replicas = state.get("replicas") or 0
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise _malformed(f"has {replicas!r:.50} replicas of a MachineDeployment")
    return DeploymentState(
        replicas=max(replicas, 0),
        sets=tuple(_manifests(MACHINE_SETS, state.get("machineSets"), namespace)),
        machines=tuple(_manifests(MACHINES, state.get("machines"), namespace)),
    )


def _manifests(resource: Resource, found: object, namespace: str) -> Iterator[Manifest]:
    """The objects as they are created, always in the namespace of the Worker."""
    for raw in found if isinstance(found, list) else ():
        one = Object(mapping(raw))
        if not isinstance(one.metadata.get("name"), str) or not one.name:
            raise _malformed(f"has a {resource.kind} without a name")
        metadata = {name: one.metadata[name] for name in _KEPT if one.metadata.get(name)}
        yield {
            "apiVersion": f"{resource.group}/{resource.version}",
            "kind": resource.kind,
            "metadata": {**metadata, "namespace": namespace},
            "spec": dict(one.spec),
        }


def _malformed(what: str) -> Malformed:
    return Malformed(
        f"status.state {what}, so that the machines of the former seed are unknown: "
        "migrate the control plane anew"
    )
