from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.core.lifecycle.shootfacts import Blocked, ShootFacts, blocked, facts


def cluster(**shoot: Any) -> Object:
    return Object({"metadata": {"name": "shoot--local--local"}, "spec": {"shoot": shoot}})


def forced(value: object) -> dict[str, Any]:
    return {"metadata": {"annotations": {"confirmation.gardener.cloud/force-deletion": value}}}


def sleeps(enabled: bool, **status: Any) -> dict[str, Any]:
    return {"spec": {"hibernation": {"enabled": enabled}}, "status": status}


def hosted_by(*workers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"provider": {"workers": [{"name": "a"}, *workers]}}}


def state(state: str) -> dict[str, Any]:
    return {"status": {"lastOperation": {"state": state}, "observedGeneration": 7}}


MANAGED, FORCED = ShootFacts(managed_infrastructure=True), ShootFacts(force_deletion=True)
ASLEEP = ShootFacts(hibernation_enabled=True, hibernated=True)


@pytest.mark.parametrize(
    ("shoot", "found"),
    [
        pytest.param({}, ShootFacts(), id="C-3-empty"),
        pytest.param(state("Failed"), ShootFacts(failed=True), id="C-6-failed"),
        pytest.param(state("Error"), ShootFacts(), id="C-6-error-is-not-failed"),
        pytest.param(sleeps(True), ShootFacts(hibernation_enabled=True), id="C-7-going-to-sleep"),
        pytest.param(sleeps(True, isHibernated=True), ASLEEP, id="C-7-asleep"),
        pytest.param(sleeps(False, isHibernated=True), ShootFacts(), id="C-7-waking-up"),
        pytest.param(forced("true"), FORCED, id="C-8-true"),
        pytest.param(forced("T"), FORCED, id="C-8-T"),
        pytest.param(forced("1"), FORCED, id="C-8-1"),
        pytest.param(forced("yes"), ShootFacts(), id="C-8-yes-is-no-boolean"),
        pytest.param(forced("tRUE"), ShootFacts(), id="C-8-odd-capitals-are-no-boolean"),
        pytest.param(forced("0"), ShootFacts(), id="C-8-0"),
        pytest.param(hosted_by({"controlPlane": {}}), ShootFacts(self_hosted=True), id="C-9-self-hosted"),
        pytest.param(hosted_by({"controlPlane": None}), ShootFacts(), id="C-9-hosted"),
        pytest.param({"spec": {"credentialsBindingName": "local"}}, MANAGED, id="C-9-credentials-binding"),
        pytest.param({"spec": {"secretBindingName": "local"}}, MANAGED, id="C-9-secret-binding"),
        pytest.param({"spec": {"secretBindingName": ""}}, MANAGED, id="C-9-even-without-a-name"),
        pytest.param({"status": {"technicalID": "shoot--a"}}, ShootFacts(technical_id="shoot--a"), id="C-1"),
    ],
)
def test_the_facts_of_a_cluster(shoot: dict[str, Any], found: ShootFacts) -> None:
    assert facts(cluster(**shoot)) == found


_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["spec", "status", "metadata", "shoot", "annotations", "provider", "workers"]),
            inner,
        )
    ),
)


@rule("C-3")
@given(_json)
def test_a_cluster_of_any_shape_is_understood(shoot: Any) -> None:
    found = facts(Object({"spec": {"shoot": shoot}}))
    values = dataclasses.asdict(found)
    assert {type(value) for value in values.values()} <= {bool, str, tuple}
    # Only what the Shoot says counts: nonsense in place of a field reads as if the field were missing.
    assert {name for name, value in values.items() if value is True} <= {"self_hosted"}
    assert ShootFacts.from_record(orjson.loads(orjson.dumps(values))) == found


SHOOT = {"gardener.cloud/role": "shoot"}
FAILED = cluster(**state("Failed"))


@pytest.mark.parametrize(
    ("namespace", "labels", "found", "held"),
    [
        pytest.param("shoot--local--local", SHOOT, FAILED, Blocked.FAILED, id="T-8+C.5-15-shoot-failed"),
        pytest.param("shoot--local--local", SHOOT, cluster(), None, id="T-8-shoot-fine"),
        pytest.param("shoot--local--local", SHOOT, None, Blocked.UNKNOWN, id="T-8-no-cluster"),
        pytest.param("garden", SHOOT, FAILED, None, id="T-8-namespace-garden"),
        pytest.param("istio-ingress", {}, None, None, id="T-8+C-4-no-label"),
        pytest.param("a", {"gardener.cloud/role": "project"}, None, None, id="T-8+C-4-no-shoot-namespace"),
        pytest.param("shoot--local--local", None, FAILED, None, id="T-8-namespace-unreadable"),
    ],
)
def test_events_wait_while_the_shoot_has_failed(
    namespace: str, labels: dict[str, str] | None, found: Object | None, held: Blocked | None
) -> None:
    assert blocked(namespace, labels, facts(found) if found else None) is held


@pytest.mark.parametrize("labels", [SHOOT, {}, None], ids=["shoot", "kube-system", "unreadable"])
@pytest.mark.parametrize(
    ("found", "held"),
    [
        pytest.param(FAILED, Blocked.FAILED, id="T-9-failed"),
        pytest.param(cluster(), None, id="T-9-fine"),
        pytest.param(None, Blocked.UNKNOWN, id="C-3-no-cluster"),
    ],
)
def test_kinds_that_need_a_shoot_wait_for_it_in_any_namespace(
    labels: dict[str, str] | None, found: Object | None, held: Blocked | None
) -> None:
    shoot = facts(found) if found else None
    assert blocked("kube-system", labels, shoot, required=True) is held
