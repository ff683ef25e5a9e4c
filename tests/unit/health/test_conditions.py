"""Conditions from the results of health checks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.core import healthchecks
from workers.core.healthchecks import Errored, Passed, Progressing, Result, Unsuccessful

NOW = datetime(2026, 9, 1, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LONG_AGO = {"status": "Progressing", "lastTransitionTime": "2026-09-01T09:58:00Z"}
JUST_NOW = {"status": "Progressing", "lastTransitionTime": "2026-09-01T09:59:30Z"}
SUCCESS, FAILING = "HealthCheckSuccessful", "HealthCheckUnsuccessful"
ON_ITS_WAY = "HealthCheckProgressing"
DOING = Progressing("rolling", threshold=MINUTE)


FINE = "All health checks successful"
ALL_THREE = (
    "failed to execute 1 health check: Unable to execute check(s): no client. Failed check(s): down. "
    "Progressing check(s): rolling."
)
BOTH = "Failed check(s): a. Progressing check(s): rolling."
TWO = "failed to execute 2 health checks: 1) a. 2) b."
SOONER = Progressing("x", threshold=timedelta(seconds=10))
ERROR = "ConditionCheckError"


@pytest.mark.parametrize(
    ("results", "old", "status", "reason", "message"),
    [
        pytest.param([Passed(), Passed()], {}, "True", SUCCESS, FINE, id="HC-6-success"),
        pytest.param([], {}, "True", SUCCESS, FINE, id="HC-6-none"),
        pytest.param([Passed(), Unsuccessful("down")], {}, "False", FAILING, "down.", id="HC-6-unsuccessful"),
        pytest.param(
            [Errored("no client"), Unsuccessful("down"), DOING],
            *({}, "Unknown", ERROR, ALL_THREE),
            id="HC-6+HC-8-errors-come-first",
        ),
        pytest.param([Errored("a"), Errored("b.")], {}, "Unknown", ERROR, TWO, id="HC-8-numbered"),
        pytest.param([Unsuccessful("a"), DOING], {}, "False", FAILING, BOTH, id="HC-8-headings"),
        pytest.param([DOING], {}, "Progressing", ON_ITS_WAY, "rolling.", id="HC-7-no-condition"),
        pytest.param([DOING], {"status": "True"}, "Progressing", ON_ITS_WAY, "rolling.", id="HC-7-was-true"),
        pytest.param([DOING], JUST_NOW, "Progressing", ON_ITS_WAY, "rolling.", id="HC-7-in-time"),
        pytest.param([DOING], LONG_AGO, "False", FAILING, "rolling.", id="HC-7-too-long"),
        pytest.param([DOING], {"status": "False"}, "False", FAILING, "rolling.", id="HC-7-was-false"),
        pytest.param([Progressing("x")], {}, "False", FAILING, "x.", id="HC-7-no-threshold"),
        pytest.param([DOING, SOONER], JUST_NOW, "False", FAILING, "1) rolling. 2) x.", id="HC-7-smallest"),
    ],
)
def test_the_worst_result_decides(
    results: list[Result], old: dict[str, str], status: str, reason: str, message: str
) -> None:
    said = healthchecks.condition("EveryNodeReady", results, old, NOW)
    assert (said.status, said.reason, said.message) == (status, reason, message)


@rule("HC-8")
def test_only_failures_have_codes() -> None:
    bad = Unsuccessful("x", ("ERR_CONFIGURATION_PROBLEM",))
    assert healthchecks.condition("A", [bad, bad], {}, NOW).codes == ("ERR_CONFIGURATION_PROBLEM",)
    assert healthchecks.condition("A", [bad, Errored("y")], {}, NOW).codes == ()


@rule("HC-3")
def test_checks_of_a_hibernated_shoot_pass() -> None:
    results: dict[str, list[Result]] = {"A": [Unsuccessful("x")], "B": [Errored("y")]}
    said = healthchecks.conditions_patch(Object({}), results, NOW, hibernated=True)["conditions"]
    assert {(one["type"], one["status"], one["reason"], one["message"]) for one in said} == {
        ("A", "True", "HealthCheckSuccessful", "Shoot is hibernated"),
        ("B", "True", "HealthCheckSuccessful", "Shoot is hibernated"),
    }


@rule("HC-9")
def test_other_conditions_stay_as_they_are() -> None:
    other = {"type": "Other", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"}
    same = {
        "type": "A",
        "status": "True",
        "reason": "HealthCheckSuccessful",
        "message": "All health checks successful",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "lastUpdateTime": "2026-01-01T00:00:00Z",
    }
    found = Object({"status": {"conditions": [other, same]}})
    assert healthchecks.conditions_patch(found, {"A": [Passed()]}, NOW, hibernated=False) == {
        "conditions": [other, same]
    }


@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        pytest.param(Passed(), None, id="HC-1-events-tell"),
        pytest.param(Unsuccessful("x"), None, id="HC-1-events-tell-of-the-end-of-a-failure"),
        pytest.param(Errored("x"), 30.0, id="HC-1-errors"),
        pytest.param(DOING, 30.0, id="HC-1-thresholds"),
    ],
)
def test_only_checks_without_an_event_are_repeated(result: Result, seconds: float | None) -> None:
    assert healthchecks.requeue_after({"A": [Passed(), result]}) == seconds


def bundle(generation: int = 1, why: str = "why", **said: str) -> Object:
    listed = [{"type": f"Resources{name}", "status": value, "message": why} for name, value in said.items()]
    return Object(
        {"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "conditions": listed}}
    )


UNHEALTHY = "is unhealthy: ResourcesHealthy is False: why"
OUTDATED = "is unhealthy: the resource manager has not looked at it yet"


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        pytest.param(None, "not found", id="HC-11-not-found"),
        pytest.param(bundle(Applied="True", Healthy="True"), "", id="HC-11+M-6-healthy"),
        pytest.param(bundle(Applied="True", Healthy="False"), UNHEALTHY, id="HC-11+M-6-unhealthy"),
        pytest.param(bundle(2, Applied="True", Healthy="True"), OUTDATED, id="HC-11+M-6-outdated"),
    ],
)
def test_the_check_of_a_managed_resource(found: Object | None, problem: str) -> None:
    wanted = Unsuccessful(f'managed resource "m" in namespace "n" {problem}') if problem else Passed()
    assert healthchecks.managed_resource("n", "m", found) == wanted


@rule("HC-11", "E-2", "E-3")
def test_an_invalid_object_is_a_configuration_problem() -> None:
    invalid = bundle(why="error during apply of object v1/Secret/a/b is invalid: no", Applied="False")
    said = healthchecks.managed_resource("n", "m", invalid)
    assert isinstance(said, Unsuccessful)
    assert said.codes == ("ERR_CONFIGURATION_PROBLEM",)


def deployment(**status: Any) -> Object:
    return Object({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, **status}})


OLD = "is unhealthy: observed generation outdated (1/2)"


def of(type_: str, status: str) -> dict[str, str]:
    return {"type": type_, "status": status, "reason": "R", "message": "m"}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        pytest.param(None, "not found", id="HC-11-no-deployment"),
        pytest.param(deployment(conditions=[of("Available", "True")]), "", id="HC-11-available"),
        pytest.param(deployment(), 'is unhealthy: condition "Available" is missing', id="HC-11-nothing-said"),
        pytest.param(
            deployment(conditions=[of("Available", "False")]), "is unhealthy: m (R)", id="HC-11-unavailable"
        ),
        pytest.param(deployment(observedGeneration=1), OLD, id="HC-11-old"),
    ],
)
def test_the_check_of_a_deployment(found: Object | None, problem: str) -> None:
    wanted = Unsuccessful(f'deployment "d" in namespace "n" {problem}') if problem else Passed()
    assert healthchecks.deployment("n", "d", found) == wanted


def machines(name: str, **status: Any) -> Object:
    head = {"name": name, "namespace": "n", "generation": 1}
    said = {"observedGeneration": 1, "conditions": [of("Available", "True")], **status}
    return Object({"metadata": head, "status": said})


FAILED = machines("b", failedMachines=[{"name": "m", "lastOperation": {"description": "no quota."}}])
STALE, DOWN = machines("b", observedGeneration=0), machines("a", conditions=[of("Available", "False")])
UNAVAILABLE = 'machine deployment "a" in namespace "n" is unhealthy: m (R)'


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        pytest.param([], "", id="HC-10-none"),
        pytest.param([machines("a"), machines("b")], "", id="HC-10-healthy"),
        pytest.param([DOWN, FAILED], 'machine "m" failed: no quota.', id="HC-10-failed-machines-come-first"),
        pytest.param([STALE, DOWN], UNAVAILABLE, id="HC-10-unhealthy"),
    ],
)
def test_the_check_of_nodes(found: list[Object], detail: str) -> None:
    assert healthchecks.nodes(found) == (Unsuccessful(detail) if detail else Passed())
