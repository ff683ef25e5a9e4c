"""Phases of Machines, as tables of what their nodes, annotations and the time make of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bus.messages import Reason, Wish
from tests.support.cases import cases
from tests.support.machineapi import MachineApi
from tests.support.rules import rule
from tests.unit.machines.samples import NOW, TIMEOUTS, ago, machine, node, spelled
from windowbox.errors import Conflict
from windowbox.models import machinekeys as keys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, RUNTIME, ObjectRef
from workers.core.owned.targets import TargetClusters
from workers.core.reconcile import Request
from workers.machines.machine import nodeupdate, phases, preserving, reasons
from workers.machines.machine.machinecreation import claim
from workers.machines.machine.machinepool import MachineMapping
from workers.machines.machine.machinespecs import Timeouts
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.machineviews import KnownMachine, may_be_replaced
from workers.machines.machine.phases import MachineState

CRITICAL = {"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}
GOOD, BAD = node(Ready="True"), node(Ready="False")
FAILED = node(Ready="True", metadata={"labels": {keys.UPDATE_RESULT: keys.FAILED}})
CONDITIONS = [{"type": "Ready", "status": "True"}]
GONE = reasons.Reason("PodGone", "Pod infra/machine-a is gone: see who deleted it")
UNHEALTHY = (
    "Machine a is unhealthy - changing MachinePhase to Unknown. Node conditions: Ready is False (R: m)"
)
JOINED, REJOINED = (f"Machine a successfully {verb} the cluster" for verb in ("joined", "re-joined"))
LATE = "Machine a failed to join the cluster in 20 minutes."
NOT_UPDATED = f"Machine a failed to in-place update: {GONE.text}"
GIVEN_UP = "Updating machine phase to Failed. Node Conditions:"
FAILING = f"Machine a health checks failing since last 10 minutes. {GIVEN_UP} Ready is False (R: m)"
LOST = f"Machine a is lost: {GONE.text}. {GIVEN_UP}"


def state(
    phase: str, *, age: float = 60, since: float = 60, last: str = "", conditions: Any = ()
) -> MachineState:
    """`last` is type and state of the last operation."""
    operation, _, operation_state = last.partition(" ")
    return MachineState("a", phase, ago(age), ago(since), operation, operation_state, conditions)


@cases(
    "before found after",
    ("B9", state("Pending"), GOOD, "Running"),
    ("B9-R2+no-conditions", state("Pending"), node(), None),
    ("B9-R2+ready-is-not-there", state("Pending"), node(DiskPressure="False"), "Running"),
    ("B9+pending-and-not-ready", state("Pending"), BAD, None),
    ("B9-R3", state("Pending"), node(Ready="True", taints=[CRITICAL]), None),
    ("B9-R3+unknown", state("Unknown"), node(Ready="True", taints=[CRITICAL]), "Running"),
    ("B9-R8", state("Failed"), GOOD, "Running"),
    ("B9+updating", state("InPlaceUpdating"), GOOD, None),
    ("B9+runs", state("Running"), GOOD, None),
    ("B9+unhealthy", state("Running"), BAD, "Unknown"),
    ("B9-R2", state("Running"), node(Ready="True", KernelDeadlock="True"), "Unknown"),
    ("B9-R2+not-named", state("Running"), node(Ready="True", DiskPressure="True"), None),
    ("B9+node-missing", state("Running", conditions=CONDITIONS), None, "Unknown"),
    ("B9+never-had-a-node", state("Running"), None, None),
    ("B9-R7", state("Pending", age=1201), None, "Failed"),
    ("B9-R7+in-time", state("Pending", age=1199), None, None),
    ("B9-R7+joined-late", state("Pending", age=1201), GOOD, "Running"),
    ("B9-R4", state("Unknown", since=601), BAD, "Failed"),
    ("B9-R4+in-time", state("Unknown", since=599), BAD, None),
    ("B9-R4+node-missing", state("Unknown", age=5000, since=601), None, "Failed"),
)
def test_node_and_time_decide_the_phase(
    before: MachineState, found: Object | None, after: str | None
) -> None:
    change = phases.verdict(before, found, TIMEOUTS, NOW).change
    assert (change.phase if change else None) == after


@cases(
    "before found seconds then",
    ("B9-R5+pending", state("Pending", age=200), None, 1000, "joined"),
    ("B9-R5+unknown", state("Unknown", since=100), BAD, 500, "healthy"),
    ("B9-R9+unknown-from-now-on", state("Running"), BAD, 600, "healthy"),
    ("updating", state("InPlaceUpdating", since=200), GOOD, 1000, "update in place"),
    ("B9-R9+update-too-late", state("InPlaceUpdating", since=1201), GOOD, 600, "healthy"),
    ("B9-R9+update-failed", state("InPlaceUpdating"), FAILED, 600, "healthy"),
)
def test_the_deadline_requeues(before: MachineState, found: Object | None, seconds: float, then: str) -> None:
    found_now = phases.verdict(before, found, TIMEOUTS, NOW)
    assert found_now.deadline
    assert (found_now.deadline - NOW).total_seconds() == seconds
    assert then in found_now.then


@cases(
    "before found last words",
    ("B9+first", state("Pending", last="Create Processing"), GOOD, "Create Successful", JOINED),
    ("B9+again", state("Unknown", last="HealthCheck"), GOOD, "HealthCheck Successful", REJOINED),
    ("B9+words", state("Running", last="Create Successful"), BAD, "HealthCheck Processing", UNHEALTHY),
    ("B9+late", state("Pending", age=1300, last="Create"), None, "Create Failed", LATE),
    ("B9+given-up", state("Unknown", since=700, last="HealthCheck"), BAD, "HealthCheck Failed", FAILING),
)
def test_each_change_says_why(before: MachineState, found: Object | None, last: str, words: str) -> None:
    change = phases.verdict(before, found, TIMEOUTS, NOW).change
    assert change
    assert (f"{change.type} {change.state}", change.description) == (last, words)


@cases("loss", ("unhealthy", None), ("pod-gone", GONE))
def test_an_unhealthy_machine_without_a_timeout_stays(loss: reasons.Reason | None) -> None:
    forever = Timeouts(1200.0, None, 7200.0, 1200.0, 360, ())
    found = phases.verdict(state(Phase.UNKNOWN, since=1e6), BAD, forever, NOW, loss)
    assert found == phases.Verdict()


@cases(
    "before found after words",
    ("runs", state("Running"), BAD, "Unknown", f"{UNHEALTHY}. {GONE.text}"),
    ("unknown", state("Unknown", since=1), BAD, "Failed", f"{LOST} Ready is False (R: m)"),
    ("no-node", state("Unknown", since=1), None, "Failed", f"{LOST} there is no node"),
    ("updating", state("InPlaceUpdating", since=1), BAD, "InPlaceUpdateFailed", NOT_UPDATED),
)
def test_a_machine_without_its_pod_is_given_up_at_once(
    before: MachineState, found: Object | None, after: str, words: str
) -> None:
    verdict = phases.verdict(before, found, TIMEOUTS, NOW, GONE)
    assert verdict.change
    assert (verdict.change.phase, verdict.change.description) == (after, words)
    assert verdict.needs_permit if after == "Failed" else verdict.deadline == NOW


@cases(
    "before found asks",
    ("works", state("Running"), GOOD, False),
    ("unhealthy", state("Running"), BAD, True),
    ("never-had-a-node", state("Running"), None, False),
    ("node-missing", state("Unknown", conditions=CONDITIONS), None, True),
    ("updating", state("InPlaceUpdating"), BAD, True),
    ("not-joined", state("Pending"), BAD, False),
    ("given-up", state("Failed"), BAD, False),
)
def test_a_failing_node_leads_to_its_pod(before: MachineState, found: Object | None, asks: bool) -> None:
    assert phases.may_have_lost_its_pod(before, found, TIMEOUTS) is asks


@pytest.mark.parametrize(
    ("phase", "is_unfinished"),
    [("Running", False), ("Unknown", True), ("InPlaceUpdating", True), ("InPlaceUpdateFailed", True)],
)
def test_a_machine_with_a_deadline_is_unfinished(phase: str, is_unfinished: bool) -> None:
    found = Object({"kind": "Machine", "metadata": {}, "status": {"currentStatus": {"phase": phase}}})
    assert MachineMapping(cast(Any, None)).unfinished(found) is is_unfinished


CANDIDATE, SELECTED = {keys.CANDIDATE: "true"}, {keys.CANDIDATE: "true", keys.SELECTED: "true"}
SUCCESSFUL = {**SELECTED, keys.UPDATE_RESULT: "successful"}
UNSUCCESSFUL = {**SELECTED, keys.UPDATE_RESULT: "failed"}


def labelled(labels: dict[str, str], reason: str = "", seconds: float = 0.0, **conditions: str) -> Object:
    said: list[dict[str, Any]] = [{"type": k, "status": v} for k, v in conditions.items()]
    if reason:
        at = spelled(ago(seconds))
        said.append({"type": "InPlaceUpdate", "status": "True", "reason": reason, "lastTransitionTime": at})
    return Object({"metadata": {"name": "machine-a", "labels": labels}, "status": {"conditions": said}})


@cases(
    "labels reason wanted",
    ("no-candidate", {}, "", ""),
    ("selected-but-no-candidate", {keys.SELECTED: "true"}, "", ""),
    ("a-candidate", CANDIDATE, "", "CandidateForUpdate"),
    ("waits-to-be-selected", CANDIDATE, "CandidateForUpdate", ""),
    ("selected-at-once", SELECTED, "", "CandidateForUpdate"),
    ("selected", SELECTED, "CandidateForUpdate", "SelectedForUpdate"),
    ("is-emptied", SELECTED, "SelectedForUpdate", ""),
    ("no-result-counts-before-it-is-empty", SUCCESSFUL, "SelectedForUpdate", ""),
    ("empty", SELECTED, "DrainSuccessful", "ReadyForUpdate"),
    ("is-updated", SELECTED, "ReadyForUpdate", ""),
    ("updated", SUCCESSFUL, "ReadyForUpdate", "UpdateSuccessful"),
    ("said-already", SUCCESSFUL, "UpdateSuccessful", ""),
    ("failed", UNSUCCESSFUL, "ReadyForUpdate", "UpdateFailed"),
    ("failure-said-already", UNSUCCESSFUL, "UpdateFailed", ""),
    ("put-right", SUCCESSFUL, "UpdateFailed", "UpdateSuccessful"),
    ("the-next-update", CANDIDATE, "UpdateSuccessful", "CandidateForUpdate"),
)
@rule("C10")
def test_the_condition_follows_the_labels(labels: dict[str, str], reason: str, wanted: str) -> None:
    assert nodeupdate.next_reason(labelled(labels, reason)) == wanted


@cases(
    "label seconds forced",
    ("normal", {}, 60, False),
    ("since-it-was-selected", {}, 7201, True),
    ("label", {keys.FORCE_DRAIN: "True"}, 60, True),
    ("label-of-another-value", {keys.FORCE_DRAIN: "true"}, 60, False),
    ("label-of-deletions", {keys.FORCE_DELETION: "True"}, 60, False),
)
@rule("C10-R2")
def test_when_a_drain_for_an_update_is_forced(label: dict[str, str], seconds: float, forced: bool) -> None:
    found = labelled(SELECTED, "SelectedForUpdate", seconds, Ready="True")
    asking = Object({**machine().raw, "metadata": {**machine().metadata, "labels": label}})
    mode = nodeupdate.mode(asking, found, TIMEOUTS, NOW)
    assert (mode.forced, mode.machine_too) == (forced, False)


@cases(
    "phase labels seconds after",
    ("waits", Phase.IN_PLACE_UPDATING, SELECTED, 60, None),
    ("too-late", Phase.IN_PLACE_UPDATING, SELECTED, 1201, Phase.IN_PLACE_UPDATE_FAILED),
    ("successful", Phase.IN_PLACE_UPDATING, SUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_SUCCESSFUL),
    ("failed", Phase.IN_PLACE_UPDATING, UNSUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_FAILED),
    ("failed-before", Phase.IN_PLACE_UPDATE_FAILED, UNSUCCESSFUL, 60, None),
    ("put-right", Phase.IN_PLACE_UPDATE_FAILED, SUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_SUCCESSFUL),
    ("failed-for-too-long", Phase.IN_PLACE_UPDATE_FAILED, UNSUCCESSFUL, 601, Phase.FAILED),
    ("runs-again", Phase.IN_PLACE_UPDATE_SUCCESSFUL, SUCCESSFUL, 60, Phase.RUNNING),
)
@rule("C10", "B9-R4")
def test_update_phases(phase: Phase, labels: dict[str, str], seconds: float, after: Phase | None) -> None:
    before = state(phase, age=9999, since=seconds)
    change = phases.verdict(before, labelled(labels, Ready="True"), TIMEOUTS, NOW).change
    assert (change.phase if change else None) == after


KEY = "node.machine.sapcloud.io/preserve"
LAST = "node.machine.sapcloud.io/last-applied-node-preserve-value"
LATER, EARLIER = "2026-08-22T10:00:00Z", spelled(ago(1))


def asking(own: str = "", *, phase: str = "Running", last: str = "", expiry: str = "") -> Object:
    annotations = {name: value for name, value in ((KEY, own), (LAST, last)) if value}
    current: dict[str, Any] = {"phase": phase} | ({"preserveExpiryTime": expiry} if expiry else {})
    return Object(
        {"metadata": {"name": "a", "annotations": annotations}, "status": {"currentStatus": current}}
    )


def its_node(value: str = "") -> Object:
    return node(Ready="True", metadata={"annotations": {KEY: value} if value else {}})


@cases(
    "found on preserved",
    ("C12+now", asking("now"), its_node(), True),
    ("C12-R1+node-missing", asking("now"), None, True),
    ("C12+not-failed", asking("when-failed"), its_node(), False),
    ("C12+failed", asking("when-failed", phase="Failed"), its_node(), True),
    ("C12-R1+node-first", asking("now"), its_node("false"), False),
    ("C12-R1+node-takes-it-back", asking("now", last="now"), its_node(), False),
    ("C12-R1+nonsense", asking("sometimes"), its_node(), False),
    ("C12-R1+nonsense-on-node", asking(expiry=LATER), its_node("sometimes"), True),
    ("C12-R4+expired", asking("now", expiry=EARLIER), its_node(), False),
    ("C12-R4+recovered", asking("auto-preserved", expiry=LATER), its_node(), False),
    ("C12-R4+recovered-by-a-user", asking("when-failed", expiry=LATER), its_node(), True),
    ("C12+auto", asking("auto-preserved", phase="Failed"), its_node(), True),
)
def test_annotations_decide(found: Object, on: Object | None, preserved: bool) -> None:
    assert preserving.decide(found, on, NOW).preserved is preserved


def known(name: str, phase: str, since: int, *, preserved: bool = False) -> KnownMachine:
    at = f"2026-01-01T00:00:0{since}Z"
    return KnownMachine(RUNTIME, "shoot--l--d", name, name, "small", "pool", phase, at, preserved)


@rule("B9-R6")
@cases(
    "phases given_up",
    ("longest-unhealthy-first", ["Unknown", "Unknown"], "a"),
    ("another-is-made", ["Unknown", "Pending"], ""),
    ("another-is-updated", ["Unknown", "InPlaceUpdating"], ""),
    ("updates-have-failed", ["InPlaceUpdateFailed", "InPlaceUpdateFailed"], "a"),
    ("one-line-for-both", ["InPlaceUpdateFailed", "Unknown"], "a"),
    ("another-is-replaced", ["Failed", "InPlaceUpdateFailed"], ""),
)
def test_one_machine_is_given_up_at_a_time(phases: list[str], given_up: str) -> None:
    waiting = ("Unknown", "InPlaceUpdateFailed")
    found = [known(name, phase, n) for n, (name, phase) in enumerate(zip("ab", phases, strict=True))]
    permitted = [one.name for one in found if one.phase in waiting and may_be_replaced(one.name, found)]
    assert "".join(permitted) == given_up


CLAIMED = {
    "finalizers": [keys.FINALIZER],
    "labels": {keys.NODE: "machine-a"},
    "annotations": {keys.PRIORITY: keys.USUAL_PRIORITY},
}


def claimed(**metadata: Any) -> Object:
    found = machine(providerID="machine-a")
    return Object({**found.raw, "metadata": {**found.metadata, **CLAIMED, **metadata}})


@cases(
    "live",
    ("gone", None),
    ("recreated", claimed(uid="another")),
    ("deleted", claimed(deletionTimestamp="2026-08-21T10:00:00Z")),
)
async def test_nothing_is_made_for_a_machine_that_is_gone(live: Object | None) -> None:
    api = MachineApi()
    if live:
        api.add(MACHINES, live)
    with pytest.raises(Conflict):
        await _claim(api)


async def test_a_machine_that_is_claimed_and_there_is_read_once() -> None:
    api = MachineApi()
    api.add(MACHINES, claimed())
    await _claim(api)
    assert api.asked == ["Machine a"]


async def _claim(api: MachineApi) -> None:
    nothing, clusters = cast(Any, None), cast(Any, api)
    ref = ObjectRef(RUNTIME, MACHINES.id, "shoot--l--d", "a")
    run = MachineRun(Request(ref, Wish(reason=Reason.RETRY), api, nothing), claimed(), NOW)
    await claim(TargetClusters(clusters, nothing).own_cluster(run.run), run, "machine-a")
