"""Storage classes of clouds, on the provisioner of type local. Pure."""

from __future__ import annotations

import re

from clouds import table
from clouds.frame.services.volumes import StorageClass, StorageSite, Volumes
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import Resource
from workers.core.owned.manifests import Manifest, manifest
from workers.kinds.controlplane import storage

_SNAPSHOT_CLASSES = Resource(
    "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False
)
_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
_BINDINGS = Resource(
    _ADMISSION,
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_LEAST_SIZE = "windowbox-least-volume-size"
_SNAPSHOT_KIND = manifest(
    _DEFINITIONS,
    "volumesnapshotclasses.snapshot.storage.k8s.io",
    spec={
        "group": "snapshot.storage.k8s.io",
        "scope": "Cluster",
        "names": {
            "kind": "VolumeSnapshotClass",
            "listKind": "VolumeSnapshotClassList",
            "plural": "volumesnapshotclasses",
            "singular": "volumesnapshotclass",
            "shortNames": ["vsclass", "vsclasses"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["deletionPolicy", "driver"],
                        "properties": {
                            "deletionPolicy": {"type": "string", "enum": ["Delete", "Retain"]},
                            "driver": {"type": "string"},
                            "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
                        },
                    }
                },
            }
        ],
    },
)
# The API server lets a group of Kubernetes' own be used with this annotation only.
_SNAPSHOT_KIND["metadata"]["annotations"] = {
    "api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"
}


def volumes(controlplane: Object, cluster: Object) -> Volumes | None:
    """The volumes of a ControlPlane's cloud; None for type local. Malformed if a config cannot be read."""
    type_ = controlplane.spec.get("type")
    if type_ not in CLOUD_TYPES:
        return None
    shoot, profile = (
        mapping(mapping(cluster.spec.get(one)).get("spec")) for one in ("shoot", "cloudProfile")
    )
    pools = mappings(mapping(shoot.get("provider")).get("workers"))
    site = StorageSite(
        config=controlplane.spec.get("providerConfig"),
        profile_config=profile.get("providerConfig"),
        zones=tuple(str(zone) for pool in pools for zone in pool.get("zones") or ()),
    )
    planner = table.cloud(type_).volumes
    assert planner  # all clouds have it
    return planner(site)


def classes(volumes: Volumes) -> list[Manifest]:
    """The classes of a cloud."""
    made = [_class(one) for one in volumes.classes]
    if volumes.snapshots:
        snapshots = manifest(
            _SNAPSHOT_CLASSES, "default", driver=volumes.snapshots.driver, deletionPolicy="Delete"
        )
        if volumes.snapshots.default:
            snapshots["metadata"]["annotations"] = {"snapshot.storage.kubernetes.io/is-default-class": "true"}
        made.append(snapshots)
    return made


def _class(one: StorageClass) -> Manifest:
    made = manifest(
        storage.STORAGE_CLASSES,
        one.name,
        labels=one.labels,
        provisioner=one.provisioner,
        parameters=dict(one.parameters),
        reclaimPolicy=one.reclaim_policy,
        volumeBindingMode=one.binding,
        allowVolumeExpansion=True,
    )
    default = {storage.DEFAULT_CLASS: "true"} if one.default else {}
    made["metadata"]["annotations"] = {
        "resources.gardener.cloud/delete-on-invalid-update": "true",
        **default,
        **one.annotations,
    }
    return made


def for_classes(volumes: Volumes, kubernetes: str) -> list[Manifest]:
    """What the classes of a cloud need in the Shoot: the kind of snapshot classes, and the least size."""
    made = [_SNAPSHOT_KIND] if volumes.snapshots else []
    return [*made, *_least_size(volumes.smallest)] if volumes.smallest and _has_policies(kubernetes) else made


def _has_policies(kubernetes: str) -> bool:
    """Whether a cluster of this version has ValidatingAdmissionPolicies (1.30)."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", kubernetes)
    return found is not None and (int(found[1]), int(found[2])) >= (1, 30)


def _least_size(smallest: str) -> list[Manifest]:
    """A policy that refuses smaller claims of the default class."""
    requested = "object.spec.resources.requests['storage']"
    rules = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["persistentvolumeclaims"],
    }
    of_class = "!has(object.spec.storageClassName) || object.spec.storageClassName == 'default'"
    spec = {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [rules]},
        "matchConditions": [{"name": "class", "expression": of_class}],
        "validations": [
            {
                "expression": f"quantity({requested}).compareTo(quantity('{smallest}')) >= 0",
                "message": f"the cloud's smallest disk has {smallest}: ask for {smallest} or more",
            }
        ],
    }
    binding = {"policyName": _LEAST_SIZE, "validationActions": ["Deny"]}
    return [
        manifest(_POLICIES, _LEAST_SIZE, spec=spec),
        manifest(_BINDINGS, _LEAST_SIZE, spec=binding),
    ]
