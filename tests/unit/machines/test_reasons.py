"""Why a machine is not there yet: from facts to a sentence with the next step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import cases
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


NAME = "node-csr-Gcc_dse6"
ISSUED = Facts(RUNNING, requests=[Request(NAME, approved=True, issued=True)], running_for=20)
REGISTERED = "has not registered a node … kubectl -n ns exec machine-a -- journalctl -u kubelet"
UNHEARD = "its user data failed, or it does not reach the … kubectl -n ns exec machine-a -- journalctl"
SLOW = Facts(pod(spec={"nodeName": "host"}), waiting_for=20)
SHUT_DOWN = {"phase": "Failed", "reason": "NodeShutdown"}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
LINE_4 = ended(3, message="user data: line 4: no such file")
SAID_4 = "exit code 3 (Error), and said: user data: line 4"
LARGER = "Pod p was evicted (low on memory): give its pool a larger volume or machine type"
REASONS = {
    "image": (
        Facts(waiting("ImagePullBackOff", "not found")),
        "ImageNotPulled: image example/node:1 cannot be pulled (not found): check",
    ),
    "image-never": (Facts(waiting("ErrImageNeverPull")), "ImageNotPulled: … (ErrImageNeverPull)"),
    "container": (
        Facts(waiting("CreateContainerError", "no such device")),
        "ContainerNotStarted: … (no such device)",
    ),
    "scheduling": (
        Facts(pod(status={"conditions": [UNSCHEDULED]})),
        "Unschedulable: … (0/3 nodes: Insufficient cpu): make room",
    ),
    "evicted": (Facts(pod(status=EVICTED)), f"PodEvicted: {LARGER}"),
    "ended": (Facts(pod(status=SHUT_DOWN)), "PodEnded: … has ended (NodeShutdown): see its Events"),
    "succeeded": (Facts(pod(status={"phase": "Succeeded"})), "PodEnded: … another is made"),
    "user-data": (Facts(LINE_4), f"MachineEnded: … {SAID_4} … kubectl -n ns logs machine-a --previous"),
    "memory": (Facts(ended(137, "OOMKilled")), "MachineEnded: … give it more memory"),
    "no-scheduler": (Facts(pod(), waiting_for=20), "NotScheduled: … kube-scheduler"),
    "slow-start": (SLOW, "PodNotStarted: … is on node host … kubectl -n ns describe pod p"),
    "unheard": (Facts(RUNNING, running_for=20), f"NotHeardOf: … {UNHEARD}"),
    "request": (
        Facts(RUNNING, requests=[Request(NAME)]),
        f"RequestNotApproved: … kubectl certificate approve {NAME}",
    ),
    "denied": (Facts(RUNNING, requests=[Request(NAME, denied=True)]), f"RequestDenied: … {NAME}"),
    "unsigned": (Facts(RUNNING, requests=[Request(NAME, approved=True)]), "RequestNotSigned: … csrsigning"),
    "unregistered": (ISSUED, f"NotRegistered: … {REGISTERED}"),
    "network": (Facts(RUNNING, node(Ready="False", message=CNI)), "NetworkMissing: … network plugin"),
    "not-ready": (
        Facts(RUNNING, node(Ready="False", message="PLEG is not healthy")),
        "NodeNotReady: … (PLEG is not healthy)",
    ),
    "registered": (Facts(RUNNING, node()), "NodeNotReady: … has registered"),
    "critical": (
        Facts(RUNNING, node(Ready="True", taints=[CRITICAL])),
        "CriticalComponents: … critical components",
    ),
}
"""By what a machine lacks: the reason, as parts of a text. Commands end it, with the Pod's namespace."""


@pytest.mark.parametrize(("facts", "said"), REASONS.values(), ids=[f"L3+{name}" for name in REASONS])
def test_what_is_wrong_is_said_with_the_next_step(facts: Facts, said: str) -> None:
    found = reasons.reason(facts)
    assert found
    text, at = f"{found.kind}: {found.text}", 0
    for part in said.split(" … "):
        assert part in text[at:]
        at = text.index(part, at) + len(part)
    assert at == len(text) or "kubectl -n" not in said


@cases(
    "facts",
    ("no-pod-seen", Facts(None)),
    ("just-made", Facts(pod(), waiting_for=1)),
    ("starts", Facts(waiting("ContainerCreating"), waiting_for=5)),
    ("boots", Facts(RUNNING, running_for=5)),
    ("ready", Facts(RUNNING, node(Ready="True"))),
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
