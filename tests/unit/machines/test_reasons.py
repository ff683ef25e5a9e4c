"""Why a machine is not there yet: from facts to a sentence with the next step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.machines.samples import container, node, pod, waiting
from windowbox.models.objects import Object
from workers.machines.machine import reasons
from workers.machines.machine.reasons import Facts, Request

UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient cpu"}
RUNNING = container({"running": {}})
CNI = "container runtime network not ready: cni plugin not initialized"
CRITICAL = {"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}


def ended(code: int, reason: str = "Error", message: str = "") -> Object:
    return container({"terminated": {"exitCode": code, "reason": reason, "message": message}})


@pytest.mark.parametrize(
    ("facts", "kind", "words"),
    [
        pytest.param(
            Facts(waiting("ImagePullBackOff", "not found")),
            "ImageNotPulled",
            "image example/node:1 cannot be pulled (not found): check",
            id="L3+image",
        ),
        pytest.param(
            Facts(waiting("ErrImageNeverPull")), "ImageNotPulled", "(ErrImageNeverPull)", id="L3+image-never"
        ),
        pytest.param(
            Facts(waiting("CreateContainerError", "no such device")),
            "ContainerNotStarted",
            "(no such device)",
            id="L3+container",
        ),
        pytest.param(
            Facts(pod(status={"conditions": [UNSCHEDULED]})),
            "Unschedulable",
            "(0/3 nodes: Insufficient cpu): make room",
            id="L3+scheduling",
        ),
        pytest.param(
            Facts(pod(status={"phase": "Failed", "reason": "Evicted", "message": "low on memory"})),
            "PodEvicted",
            "Pod p was evicted (low on memory): give its pool a larger volume or machine type",
            id="L3+evicted",
        ),
        pytest.param(
            Facts(pod(status={"phase": "Failed", "reason": "NodeShutdown"})),
            "PodEnded",
            "has ended (NodeShutdown): see its Events",
            id="L3+ended",
        ),
        pytest.param(
            Facts(pod(status={"phase": "Succeeded"})), "PodEnded", "another is made", id="L3+succeeded"
        ),
        pytest.param(
            Facts(ended(3, message="user data: line 4: no such file")),
            "MachineEnded",
            "exit code 3 (Error), and said: user data: line 4",
            id="L3+user-data",
        ),
        pytest.param(Facts(ended(137, "OOMKilled")), "MachineEnded", "give it more memory", id="L3+memory"),
        pytest.param(Facts(pod(), waiting_for=20), "NotScheduled", "kube-scheduler", id="L3+no-scheduler"),
        pytest.param(
            Facts(pod(spec={"nodeName": "host"}), waiting_for=20),
            "PodNotStarted",
            "is on node host",
            id="L3+slow-start",
        ),
        pytest.param(
            Facts(RUNNING, running_for=20),
            "NotHeardOf",
            "its user data failed, or it does not reach the API server",
            id="L3+unheard",
        ),
        pytest.param(
            Facts(RUNNING, requests=[Request("node-csr-Gcc_dse6")]),
            "RequestNotApproved",
            "kubectl certificate approve node-csr-Gcc_dse6",
            id="L3+request",
        ),
        pytest.param(
            Facts(RUNNING, requests=[Request("node-csr-Gcc_dse6", denied=True)]),
            "RequestDenied",
            "node-csr-Gcc_dse6",
            id="L3+denied",
        ),
        pytest.param(
            Facts(RUNNING, requests=[Request("node-csr-Gcc_dse6", approved=True)]),
            "RequestNotSigned",
            "csrsigning",
            id="L3+unsigned",
        ),
        pytest.param(
            Facts(
                RUNNING, requests=[Request("node-csr-Gcc_dse6", approved=True, issued=True)], running_for=20
            ),
            "NotRegistered",
            "has not registered a node",
            id="L3+unregistered",
        ),
        pytest.param(
            Facts(RUNNING, node(Ready="False", message=CNI)),
            "NetworkMissing",
            "network plugin",
            id="L3+network",
        ),
        pytest.param(
            Facts(RUNNING, node(Ready="False", message="PLEG is not healthy")),
            "NodeNotReady",
            "(PLEG is not healthy)",
            id="L3+not-ready",
        ),
        pytest.param(Facts(RUNNING, node()), "NodeNotReady", "has registered", id="L3+registered"),
        pytest.param(
            Facts(RUNNING, node(Ready="True", taints=[CRITICAL])),
            "CriticalComponents",
            "critical components",
            id="L3+critical",
        ),
    ],
)
def test_what_is_wrong_is_said(facts: Facts, kind: str, words: str) -> None:
    found = reasons.reason(facts)
    assert found
    assert found.kind == kind
    assert words in found.text


@pytest.mark.parametrize(
    ("facts", "command"),
    [
        pytest.param(Facts(ended(3)), "kubectl -n ns logs machine-a --previous", id="ended"),
        pytest.param(
            Facts(pod(spec={"nodeName": "host"}), waiting_for=20),
            "kubectl -n ns describe pod p",
            id="slow-start",
        ),
        pytest.param(
            Facts(RUNNING, running_for=20), "kubectl -n ns exec machine-a -- journalctl", id="unheard"
        ),
        pytest.param(
            Facts(
                RUNNING, requests=[Request("node-csr-Gcc_dse6", approved=True, issued=True)], running_for=20
            ),
            "kubectl -n ns exec machine-a -- journalctl -u kubelet",
            id="unregistered",
        ),
    ],
)
def test_a_hint_names_the_namespace_of_the_pod(facts: Facts, command: str) -> None:
    found = reasons.reason(facts)
    assert found
    assert found.text.endswith(command)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(Facts(None), id="no-pod-seen"),
        pytest.param(Facts(pod(), waiting_for=1), id="just-made"),
        pytest.param(Facts(waiting("ContainerCreating"), waiting_for=5), id="starts"),
        pytest.param(Facts(RUNNING, running_for=5), id="boots"),
        pytest.param(Facts(RUNNING, node(Ready="True")), id="ready"),
    ],
)
def test_nothing_is_said_while_nothing_is_wrong(facts: Facts) -> None:
    assert reasons.reason(facts) is None


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": "x"},
        {"containerStatuses": [None, {"name": "node", "state": 5}]},
        {"conditions": {"type": "PodScheduled"}},
        {"containerStatuses": [{"name": "node", "state": {"waiting": {"reason": ["a"], "message": {}}}}]},
    ],
)
def test_nonsense_is_no_reason(status: Any) -> None:
    assert reasons.reason(Facts(pod(status=status))) is None


def test_long_words_of_others_are_cut() -> None:
    found = reasons.reason(Facts(waiting("ErrImagePull", "x\n" * 5000)))
    assert found
    assert len(found.text) < 700
    assert "\n" not in found.text
