"""The children of a sandbox that simulate nodes: kwok, with its stages, and the node simulator.

A Pod becomes ready at once. The annotation `simulator.windowbox/behaviour` keeps it `pending` or `unready`,
or lets it `fail`, until the annotation changes, or lets it `complete`, as the Pods of Jobs do.
"""

from __future__ import annotations

import socket
import sys
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml

from sandbox import files, processes
from sandbox.children import Child
from sandbox.servers.apiserver import ApiServer, is_ready
from sandbox.simulated import nodes
from sandbox.simulated.openports import BEHAVIOUR, PLAYED, PROXY_HEALTH
from windowbox.errors import Refused
from windowbox.models.refs import NODES

_LEASE_SECONDS = 20
"""Renewed after a quarter of that: long before the controllers believe that a node is lost."""


def network(port: int) -> str:
    """A loopback subnet derived from a port of the sandbox, which no other sandbox has."""
    return f"127.{port >> 8}.{port & 255}.0/24"


def kwok(program: Path, kubeconfig: Path, api: ApiServer, count: int, pods: IPv4Network) -> Child:
    """Simulates the kubelets; ready when all `count` simulated Nodes are.

    No traffic reaches `pods`: the node simulator answers for all Pods.
    """
    stages = kubeconfig.parent / "kwok.yaml"
    paths = [NODES.path(name=name) for name in nodes.names(count)]
    files.write(stages, yaml.safe_dump_all(_STAGES, sort_keys=False))
    return Child(
        "kwok",
        [
            str(program), f"--kubeconfig={kubeconfig}", f"--cidr={pods[1]}/{pods.prefixlen}",
            f"--manage-nodes-with-annotation-selector={PLAYED}=fake", "--manage-all-nodes=false",
            f"--node-lease-duration-seconds={_LEASE_SECONDS}",
            f"--config={stages}",
        ],
        ready=lambda: all(is_ready(api.find(path, timeout=2)) for path in paths),
    )  # fmt: skip


def node_simulator(kubeconfig: Path, count: int, network: str) -> Child:
    """Registers the Nodes and simulates their network; ready when every node answers."""
    addresses = nodes.addresses(network, count)
    if foreign := [address for address in addresses if not can_listen(address)]:
        raise Refused(
            f"simulated nodes cannot listen on {', '.join(foreign)}: "
            f"let the addresses be this machine's, `sudo ifconfig lo0 alias {foreign[0]}` on macOS"
        )

    def ready() -> bool:
        try:
            for address in addresses:
                socket.create_connection((address, PROXY_HEALTH), timeout=1).close()
        except OSError:
            return False
        return True

    return Child(
        "node-simulator",
        [
            sys.executable, "-m", "sandbox.simulated",
            f"--kubeconfig={kubeconfig}", f"--nodes={count}", f"--network={network}",
        ],
        ready=ready,
        env=processes.python_environment(),
    )  # fmt: skip


def can_listen(address: str) -> bool:
    """Whether this machine has the address: on Linux all of 127.0.0.0/8, on macOS only 127.0.0.1."""
    with socket.socket() as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
        return True


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
_GATES = "{{ range .spec.readinessGates }}%s{{ end }}"
"""Others set such conditions, but here nobody does."""
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
"""kwok returns another address for the Pod at each call, so it is called once."""


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
    conditions += _GATES % _CONDITION % ("{{ .conditionType | Quote }}", status)
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
    *(
        _stage(
            "Pod", f"pod-{name}",
            [_STAYS, _in(_PHASE, "Running"), _in(_READY, "True"), ending],
            {"statusTemplate": _ended("Succeeded", 0, "Completed")},
        )
        for name, ending in (("of-job-completed", _in(_OWNERS, "Job")), ("completed", _in(_TOLD, "complete")))
    ),
    _stage("Pod", "pod-gone", [{"key": _DELETED, "operator": "Exists"}], {"delete": True}),
]  # fmt: skip
