"""Storage for a Shoot: local-path-provisioner, and its StorageClass. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windowbox.models.refs import DEPLOYMENTS, Resource
from workers.core.owned.manifests import Manifest, manifest
from workers.kinds.controlplane import controlplanerights

_NAME = "local-path-provisioner"
_LOCAL = "rancher.io/local-path"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ACCOUNT = f"{_NAME}-service-account"
_CONFIG = "local-path-config"
_NAMESPACE = "kube-system"
_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_PATHS = {
    "nodePathMap": [
        {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/var/lib/local-path-provisioner"]}
    ]
}
_SETUP = '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n'
_TEARDOWN = '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n'
_HELPER_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: helper-pod
spec:
  priorityClassName: system-node-critical
  tolerations:
  - operator: Exists
    effect: NoSchedule
  containers:
  - name: helper-pod
    image: {image}
    imagePullPolicy: IfNotPresent
"""
_READ = ("get", "list", "watch")
_ALL = (*_READ, "create", "patch", "update", "delete")
_RULES = (
    controlplanerights.rule("", ["nodes", "persistentvolumeclaims", "configmaps", "pods/log"], _READ),
    controlplanerights.rule("", ["endpoints", "persistentvolumes", "pods"], _ALL),
    controlplanerights.rule("", ["events"], ("create", "patch")),
    controlplanerights.rule("storage.k8s.io", ["storageclasses"], _READ),
)


def provisioner(image: str, helper_image: str, names: Sequence[str] = (_LOCAL,)) -> list[Manifest]:
    """The provisioner that makes directories of nodes into volumes, under these names of provisioners."""
    account = controlplanerights.subject(_ACCOUNT)
    data = {
        "config.json": json.dumps(_PATHS, indent=2) + "\n",
        "helperPod.yaml": _HELPER_POD.format(image=helper_image),
        "setup": _SETUP,
        "teardown": _TEARDOWN,
    }
    return [
        controlplanerights.service_account(_ACCOUNT, _NAMESPACE),
        controlplanerights.cluster_role(_NAME, _RULES),
        controlplanerights.cluster_role_binding(_NAME, _NAME, [account]),
        manifest(_CONFIG_MAPS, _CONFIG, _NAMESPACE, data=data),
        _deployment(image, helper_image, names),
    ]


def storage_class() -> Manifest:
    made = manifest(
        STORAGE_CLASSES,
        "default",
        provisioner=_LOCAL,
        reclaimPolicy="Delete",
        volumeBindingMode="WaitForFirstConsumer",
    )
    made["metadata"]["annotations"] = {
        DEFAULT_CLASS: "true",
        "defaultVolumeType": "local",
    }
    return made


def _deployment(image: str, helper_image: str, names: Sequence[str]) -> Manifest:
    labels = {"app": _NAME}
    allowed = {
        "networking.gardener.cloud/to-apiserver": "allowed",
        "networking.gardener.cloud/to-dns": "allowed",
    }
    command = [
        _NAME,
        "--debug",
        "start",
        "--helper-image",
        helper_image,
        "--config",
        "/etc/config/config.json",
    ]
    container: dict[str, Any] = {
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
    }
    pod = {
        "metadata": {"labels": labels | allowed},
        "spec": {
            "priorityClassName": "system-cluster-critical",
            "serviceAccountName": _ACCOUNT,
            # The ServiceAccount itself has none mounted.
            "automountServiceAccountToken": True,
            # Each serves one name: a provisioner of its own for the API server, by its election.
            "containers": [
                {
                    "name": f"{_NAME}-{number}" if number else _NAME,
                    "command": command if name == _LOCAL else [*command, "--provisioner-name", name],
                    **container,
                }
                for number, name in enumerate(names)
            ],
            "volumes": [{"name": "config", "configMap": {"name": _CONFIG}}],
        },
    }
    spec = {"replicas": 1, "revisionHistoryLimit": 1, "selector": {"matchLabels": labels}, "template": pod}
    return manifest(DEPLOYMENTS, _NAME, _NAMESPACE, labels=labels, spec=spec)
