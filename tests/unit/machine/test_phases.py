"""Phases of Machines, as a table of what a node and the time make of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.machine.samples import NOW, TIMEOUTS, ago, node
from windowbox.models import machinekeys as keys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from workers.machines.machine import phases
from workers.machines.machine.machinemapping import MachineMapping
from workers.machines.machine.machinespecs import Timeouts
from workers.machines.machine.phases import MachineState
from workers.machines.machine.reasons import Reason

CRITICAL = {"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}
GOOD, BAD = node(Ready="True"), node(Ready="False")
FAILED = node(Ready="True", metadata={"labels": {keys.UPDATE_RESULT: keys.FAILED}})
CONDITIONS = [{"type": "Ready", "status": "True"}]
GONE = Reason("PodGone", "Pod infra/machine-a is gone: see who deleted it")


def state(phase: str, *, age: float = 60, since: float = 60, **more: Any) -> MachineState:
    return MachineState("a", phase, ago(age), ago(since), **more)


@pytest.mark.parametrize(
    ("before", "found", "after"),
    [
        pytest.param(state("Pending"), GOOD, "Running", id="B9"),
        pytest.param(state("Pending"), node(), None, id="B9-R2+no-conditions"),
        pytest.param(state("Pending"), node(DiskPressure="False"), "Running", id="B9-R2+ready-is-not-there"),
        pytest.param(state("Pending"), BAD, None, id="B9+pending-and-not-ready"),
        pytest.param(state("Pending"), node(Ready="True", taints=[CRITICAL]), None, id="B9-R3"),
        pytest.param(state("Unknown"), node(Ready="True", taints=[CRITICAL]), "Running", id="B9-R3+unknown"),
        pytest.param(state("Failed"), GOOD, "Running", id="B9-R8"),
        pytest.param(state("InPlaceUpdating"), GOOD, None, id="B9+updating"),
        pytest.param(state("Running"), GOOD, None, id="B9+runs"),
        pytest.param(state("Running"), BAD, "Unknown", id="B9+unhealthy"),
        pytest.param(state("Running"), node(Ready="True", KernelDeadlock="True"), "Unknown", id="B9-R2"),
        pytest.param(state("Running"), node(Ready="True", DiskPressure="True"), None, id="B9-R2+not-named"),
        pytest.param(state("Running", conditions=CONDITIONS), None, "Unknown", id="B9+node-missing"),
        pytest.param(state("Running"), None, None, id="B9+never-had-a-node"),
        pytest.param(state("Pending", age=1201), None, "Failed", id="B9-R7"),
        pytest.param(state("Pending", age=1199), None, None, id="B9-R7+in-time"),
        pytest.param(state("Pending", age=1201), GOOD, "Running", id="B9-R7+joined-late"),
        pytest.param(state("Unknown", since=601), BAD, "Failed", id="B9-R4"),
        pytest.param(state("Unknown", since=599), BAD, None, id="B9-R4+in-time"),
        pytest.param(state("Unknown", age=5000, since=601), None, "Failed", id="B9-R4+node-missing"),
    ],
)
def test_the_phase_follows_from_node_and_time(
    before: MachineState, found: Object | None, after: str | None
) -> None:
    change = phases.verdict(before, found, TIMEOUTS, NOW).change
    assert (change.phase if change else None) == after


@pytest.mark.parametrize(
    ("before", "found", "seconds", "then"),
    [
        pytest.param(state("Pending", age=200), None, 1000, "joined", id="B9-R5+pending"),
        pytest.param(state("Unknown", since=100), BAD, 500, "healthy", id="B9-R5+unknown"),
        pytest.param(state("Running"), BAD, 600, "healthy", id="B9-R9+unknown-from-now-on"),
        pytest.param(state("InPlaceUpdating", since=200), GOOD, 1000, "update in place", id="updating"),
        pytest.param(state("InPlaceUpdating", since=1201), GOOD, 600, "healthy", id="B9-R9+update-too-late"),
        pytest.param(state("InPlaceUpdating"), FAILED, 600, "healthy", id="B9-R9+update-failed"),
    ],
)
def test_the_next_look_is_at_the_deadline(
    before: MachineState, found: Object | None, seconds: float, then: str
) -> None:
    found_now = phases.verdict(before, found, TIMEOUTS, NOW)
    assert found_now.deadline
    assert (found_now.deadline - NOW).total_seconds() == seconds
    assert then in found_now.then


@pytest.mark.parametrize(
    ("before", "found", "operation", "words"),
    [
        pytest.param(
            state("Pending", operation="Create", operation_state="Processing"),
            GOOD,
            ("Create", "Successful"),
            "Machine a successfully joined the cluster",
            id="B9+first",
        ),
        pytest.param(
            state("Unknown", operation="HealthCheck", operation_state="Processing"),
            GOOD,
            ("HealthCheck", "Successful"),
            "Machine a successfully re-joined the cluster",
            id="B9+again",
        ),
        pytest.param(
            state("Running", operation="Create", operation_state="Successful"),
            BAD,
            ("HealthCheck", "Processing"),
            "Machine a is unhealthy - changing MachinePhase to Unknown. "
            "Node conditions: Ready is False (R: m)",
            id="B9+words",
        ),
        pytest.param(
            state("Pending", age=1300, operation="Create"),
            None,
            ("Create", "Failed"),
            "Machine a failed to join the cluster in 20 minutes.",
            id="B9+late",
        ),
        pytest.param(
            state("Unknown", since=700, operation="HealthCheck"),
            BAD,
            ("HealthCheck", "Failed"),
            "Machine a health checks failing since last 10 minutes. Updating machine phase to Failed. "
            "Node Conditions: Ready is False (R: m)",
            id="B9+given-up",
        ),
    ],
)
def test_each_change_says_why(
    before: MachineState, found: Object | None, operation: tuple[str, str], words: str
) -> None:
    change = phases.verdict(before, found, TIMEOUTS, NOW).change
    assert change
    assert ((change.type, change.state), change.description) == (operation, words)


@pytest.mark.parametrize("loss", [None, GONE], ids=["unhealthy", "pod-gone"])
def test_an_unhealthy_machine_without_a_timeout_stays(loss: Reason | None) -> None:
    forever = Timeouts(1200.0, None, 7200.0, 1200.0, 360, ())
    found = phases.verdict(state(Phase.UNKNOWN, since=1e6), BAD, forever, NOW, loss)
    assert found == phases.Verdict()


@pytest.mark.parametrize(
    ("before", "found", "after", "words"),
    [
        pytest.param(
            state("Running"),
            BAD,
            "Unknown",
            "Machine a is unhealthy - changing MachinePhase to Unknown. "
            "Node conditions: Ready is False (R: m). Pod infra/machine-a is gone: see who deleted it",
            id="runs",
        ),
        pytest.param(
            state("Unknown", since=1),
            BAD,
            "Failed",
            "Machine a is lost: Pod infra/machine-a is gone: see who deleted it. Updating machine phase to "
            "Failed. Node Conditions: Ready is False (R: m)",
            id="unknown",
        ),
        pytest.param(
            state("Unknown", since=1),
            None,
            "Failed",
            "Machine a is lost: Pod infra/machine-a is gone: see who deleted it. Updating machine phase to "
            "Failed. Node Conditions: there is no node",
            id="node-missing",
        ),
        pytest.param(
            state("InPlaceUpdating", since=1),
            BAD,
            "InPlaceUpdateFailed",
            "Machine a failed to in-place update: Pod infra/machine-a is gone: see who deleted it",
            id="updating",
        ),
    ],
)
def test_a_machine_without_its_pod_is_given_up_at_once(
    before: MachineState, found: Object | None, after: str, words: str
) -> None:
    verdict = phases.verdict(before, found, TIMEOUTS, NOW, GONE)
    assert verdict.change
    assert (verdict.change.phase, verdict.change.description) == (after, words)
    assert verdict.needs_permit if after == "Failed" else verdict.deadline == NOW


@pytest.mark.parametrize(
    ("before", "found", "asks"),
    [
        pytest.param(state("Running"), GOOD, False, id="works"),
        pytest.param(state("Running"), BAD, True, id="unhealthy"),
        pytest.param(state("Running"), None, False, id="never-had-a-node"),
        pytest.param(state("Unknown", conditions=CONDITIONS), None, True, id="node-missing"),
        pytest.param(state("InPlaceUpdating"), BAD, True, id="updating"),
        pytest.param(state("Pending"), BAD, False, id="not-joined"),
        pytest.param(state("Failed"), BAD, False, id="given-up"),
    ],
)
def test_a_pod_is_asked_for_when_its_node_does_not_work(
    before: MachineState, found: Object | None, asks: bool
) -> None:
    assert phases.may_have_lost_its_pod(before, found, TIMEOUTS) is asks


@pytest.mark.parametrize(
    ("phase", "is_unfinished"),
    [("Running", False), ("Unknown", True), ("InPlaceUpdating", True), ("InPlaceUpdateFailed", True)],
)
def test_a_machine_with_a_deadline_is_unfinished(phase: str, is_unfinished: bool) -> None:
    found = Object({"kind": "Machine", "metadata": {}, "status": {"currentStatus": {"phase": phase}}})
    assert MachineMapping(cast(Any, None)).unfinished(found) is is_unfinished
