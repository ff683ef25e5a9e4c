"""The rights that load balancers take, compared with those of Kubernetes' own service controller."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from windowbox.rights.rbac import RULES

READING = {"get", "list", "watch"}


def verbs(role: str, resource: str) -> set[str]:
    rules = (one for one in RULES[role] if resource in one["resources"])
    return {verb for one in rules for verb in one["verbs"]}


@rule("LB-2-rights", "LB-2-subresource")
@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_of_services_only_the_status_may_be_written(role: str) -> None:
    assert verbs(role, "services") <= READING
    assert verbs(role, "services/status") <= {"patch"}


@rule("LB-2-rights")
@pytest.mark.parametrize("resource", ["nodes", "pods", "endpointslices"])
@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_what_traffic_goes_to_is_only_looked_at(role: str, resource: str) -> None:
    assert verbs(role, resource) <= READING


@rule("LB-2-rights")
def test_only_the_patcher_writes_events() -> None:
    writing = {role for role in RULES if verbs(role, "events")}
    assert writing == {"patcher"}
