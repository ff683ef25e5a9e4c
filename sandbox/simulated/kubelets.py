"""The configuration of kwok: its stages for Nodes and Pods.

A Pod becomes ready at once. The annotation `simulator.windowbox/behaviour` keeps it `pending` or `unready`,
or lets it `fail`, until the annotation changes.
"""

from __future__ import annotations

from typing import Any

import yaml

from sandbox.simulated.openports import BEHAVIOUR

_TOLD = f'.metadata.annotations["{BEHAVIOUR}"]'
_DELETED = ".metadata.deletionTimestamp"
_PHASE = ".status.phase"
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_OWNERS = ".metadata.ownerReferences.[].kind"
_CONTAINERS = """
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  restartCount: 0
  %s
{{ end }}
"""
_CONDITION = """
- type: %s
  status: "%s"
  lastTransitionTime: {{ Now | Quote }}
"""
_ENDED = "ready: false\n  state: {terminated: {exitCode: %d, reason: %s, finishedAt: {{ Now | Quote }}}}"
_RUNNING = "ready: %s\n  started: true\n  state: {running: {startedAt: {{ Now | Quote }}}}"

_NODE_READY = """
phase: Running
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
{{ end }}
capacity: {cpu: 1k, memory: 1Ti, pods: 100k}
allocatable: {cpu: 1k, memory: 1Ti, pods: 100k}
nodeInfo:
  architecture: amd64
  operatingSystem: linux
  containerRuntimeVersion: kwok-{{ Version }}
  kernelVersion: kwok-{{ Version }}
  kubeletVersion: kwok-{{ Version }}
  kubeProxyVersion: kwok-{{ Version }}
  osImage: simulated
  machineID: ""
  systemUUID: ""
  bootID: ""
"""
_PLACED = """
{{ if not .status.podIP }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
{{ $host := or .spec.hostNetwork false }}
{{ with PodIPsWith .spec.nodeName $host .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
{{ end }}
"""
"""Each time it is asked kwok has another address for the Pod: so ask once."""


def configuration() -> str:
    """kwok's configuration file."""
    return yaml.safe_dump_all(_STAGES, sort_keys=False)


def _stage(kind: str, name: str, when: list[dict[str, Any]], then: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _not_in(key: str, *values: str) -> dict[str, Any]:
    """Not one of these, or nothing at all."""
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _running(ready: bool) -> str:
    status = {True: "True", False: "False"}[ready]
    conditions = _CONDITION % ("Initialized", "True")
    conditions += "".join(_CONDITION % (kind, status) for kind in ("Ready", "ContainersReady"))
    containers = _CONTAINERS % (_RUNNING % status.lower())
    return f"phase: Running\nstartTime: {{{{ Now | Quote }}}}\nconditions:{conditions}{containers}{_PLACED}"


def _ended(phase: str, code: int, reason: str) -> str:
    conditions = "".join(_CONDITION % (kind, "False") for kind in ("Ready", "ContainersReady"))
    return f"phase: {phase}\nconditions:{conditions}" + _CONTAINERS % (_ENDED % (code, reason))


_STAYS = {"key": _DELETED, "operator": "DoesNotExist"}
_STAGES = [
    _stage("Node", "node-ready", [_not_in(_READY, "True")], {"statusTemplate": _NODE_READY}),
    _stage(
        "Pod", "pod-ready",
        [
            _STAYS, _in(_PHASE, "Pending", "Running"), _not_in(_READY, "True"),
            _not_in(_TOLD, "pending", "unready", "fail"),
        ],
        {"statusTemplate": _running(True)},
    ),
    _stage(
        "Pod", "pod-unready",
        [_STAYS, _in(_PHASE, "Pending", "Running"), _not_in(_READY, "False"), _in(_TOLD, "unready")],
        {"statusTemplate": _running(False)},
    ),
    _stage(
        "Pod", "pod-failed",
        [_STAYS, _in(_PHASE, "Pending", "Running"), _in(_TOLD, "fail")],
        {"statusTemplate": _ended("Failed", 1, "Error")},
    ),
    _stage(
        "Pod", "pod-completed",
        [_STAYS, _in(_PHASE, "Running"), _in(_READY, "True"), _in(_OWNERS, "Job")],
        {"statusTemplate": _ended("Succeeded", 0, "Completed")},
    ),
    _stage("Pod", "pod-gone", [{"key": _DELETED, "operator": "Exists"}], {"delete": True}),
]  # fmt: skip
