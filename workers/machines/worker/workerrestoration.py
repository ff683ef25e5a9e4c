"""Restoration: the machines of a former seed are recreated from `status.state`, so that their nodes stay."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import orjson

from windowbox.errors import Malformed, Waiting
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, Resource
from workers.core.owned.manifests import Manifest, manifest
from workers.core.owned.targets import TargetCluster, in_batches
from workers.machines.worker.workerstate import Observed

_REQUEUE_AFTER = 1.0
_LARGEST = 32 * 1024 * 1024
"""Bytes of unpacked state: some thousands of machines. A larger state is a decompression bomb."""
_KEPT = ("annotations", "labels")
"""Owner references and uids of the former seed name objects that do not exist here."""


@dataclass(frozen=True)
class DeploymentState:
    """The state of one MachineDeployment at the former seed."""

    replicas: int
    sets: tuple[Manifest, ...]
    machines: tuple[Manifest, ...]


@dataclass(frozen=True)
class Restoration:
    """Sets and machines that must exist before their MachineDeployment, which would create new machines."""

    states: Mapping[str, DeploymentState]
    namespace: str

    @classmethod
    def of(cls, worker: Object, wanted: Collection[str]) -> Self:
        found = decoded(worker)
        return cls({name: one for name, one in found.items() if name in wanted}, worker.namespace)

    async def create(self, target: TargetCluster, before: Observed) -> None:
        """Create the machines, then the sets, of each MachineDeployment that does not exist yet.

        Each kind waits until the bus knows the former: a reconcile of a set then finds its machines and
        creates no others. Once a MachineDeployment exists, a missing object has been removed on purpose.
        """
        missing = [
            state
            for name, state in self.states.items()
            if name not in before.deployments
            and await target.live(MACHINE_DEPLOYMENTS, self.namespace, name) is None
        ]
        for resource, parts in (
            (MACHINES, [part for one in missing for part in one.machines]),
            (MACHINE_SETS, [part for one in missing for part in one.sets]),
        ):
            names = [part["metadata"]["name"] for part in parts]
            known = {name: await target.cached(resource, self.namespace, name) for name in names}
            unknown = [part for part in parts if known[part["metadata"]["name"]] is None]
            await in_batches(target.create_if_absent(resource, part) for part in unknown)
            if unknown:
                # The next run continues, once the bus shows these objects.
                what = f"{len(unknown)} of {len(parts)} objects of kind {resource.kind}"
                raise Waiting(f"waiting until {what} are restored", retry_after=_REQUEUE_AFTER)


def decoded(worker: Object) -> dict[str, DeploymentState]:
    """The state by names of MachineDeployments, without those that have no MachineSets."""
    state = worker.status.get("state")
    if not isinstance(state, Mapping) or not state.get("state"):
        return {}
    try:
        packed = base64.b64decode(str(state["state"]), validate=True)
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(_LARGEST + 1)
    except (binascii.Error, ValueError, OSError, EOFError, zlib.error) as error:
        raise _malformed("is not base64 of gzip") from error
    if len(content) > _LARGEST:
        raise _malformed(f"unpacks to more than {_LARGEST} bytes")
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _malformed("holds no JSON") from error
    states = {}
    for name, raw in mapping(mapping(found).get("machineDeployments")).items():
        one = mapping(raw)
        replicas = one.get("replicas") or 0
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            raise _malformed(f"has {replicas!r:.50} replicas of a MachineDeployment")
        states[name] = DeploymentState(
            replicas=max(replicas, 0),
            sets=tuple(_manifests(MACHINE_SETS, one.get("machineSets"), worker.namespace)),
            machines=tuple(_manifests(MACHINES, one.get("machines"), worker.namespace)),
        )
    return {name: one for name, one in states.items() if one.sets}


def _manifests(resource: Resource, found: object, namespace: str) -> Iterator[Manifest]:
    """The objects as they are created, always in the namespace of the Worker."""
    for raw in found if isinstance(found, list) else ():
        one = Object(mapping(raw))
        if not isinstance(one.metadata.get("name"), str) or not one.name:
            raise _malformed(f"has a {resource.kind} without a name")
        made = manifest(resource, one.name, namespace, spec=dict(one.spec))
        made["metadata"] |= {name: one.metadata[name] for name in _KEPT if one.metadata.get(name)}
        yield made


def _malformed(what: str) -> Malformed:
    return Malformed(
        f"status.state {what}, so that the machines of the former seed are unknown: "
        "migrate the control plane again"
    )
