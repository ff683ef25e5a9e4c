"""Which Services are ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support.lbobjects import nonsense, service
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer.spec import selection

HELD: dict[str, Any] = {"finalizers": ["other.io/x", "service.kubernetes.io/load-balancer-cleanup"]}
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(service(), True, id="LB-1-wants"),
        pytest.param(service(type="ClusterIP"), False, id="LB-1-wants-other-type"),
        pytest.param(service(type="NodePort"), False, id="LB-1-wants-node-port"),
        pytest.param(service(type=None), False, id="LB-1-wants-no-type"),
        pytest.param(service(loadBalancerClass="example.com/other"), False, id="LB-1-class-foreign"),
        pytest.param(service(loadBalancerClass="windowbox"), True, id="LB-1-class-ours"),
        pytest.param(service(loadBalancerClass=""), False, id="LB-1-class-empty-is-one"),
        pytest.param(service(loadBalancerClass=["windowbox"]), False, id="LB-1-class-nonsense"),
        pytest.param(
            service(type="ClusterIP", loadBalancerClass="windowbox"), False, id="LB-1-class-not-type"
        ),
    ],
)
def test_a_service_wants_a_load_balancer_of_ours(found: Object, expected: bool) -> None:
    assert selection.is_ours(found, ("windowbox",)) is expected


@rule("LB-1-class")
def test_no_class_is_ours_by_itself() -> None:
    assert not selection.is_ours(service(loadBalancerClass="windowbox"), ())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(service(metadata=HELD), False, id="LB-1-cleanup-not-while-wanted"),
        pytest.param(service(metadata=HELD | DELETED), True, id="LB-1-cleanup-deleted"),
        pytest.param(service(metadata=HELD, type="ClusterIP"), True, id="LB-1-cleanup-other-type"),
        pytest.param(service(metadata=DELETED), False, id="LB-1-cleanup-not-held"),
        pytest.param(service(metadata=DELETED | {"finalizers": None}), False, id="LB-1-cleanup-no-list"),
        pytest.param(service(type="ClusterIP"), False, id="LB-1-cleanup-never-was"),
        pytest.param(
            service(metadata=HELD, loadBalancerClass="example.com/other"),
            False,
            id="LB-1-foreign-is-left-alone",
        ),
        pytest.param(
            service(metadata=HELD | DELETED, loadBalancerClass="example.com/other"),
            True,
            id="LB-1-foreign-deleted",
        ),
    ],
)
def test_what_is_ours_no_longer_is_cleaned_up(found: Object, expected: bool) -> None:
    assert selection.needs_cleanup(found) is expected


@given(nonsense)
def test_nonsense_gets_an_answer(found: Object) -> None:
    assert isinstance(selection.is_ours(found, ("windowbox",)), bool)
    assert isinstance(selection.needs_cleanup(found), bool)
