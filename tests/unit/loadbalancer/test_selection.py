"""Which Services are ours."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.support.cases import cases
from tests.support.lbobjects import nonsense, service
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.loadbalancer.spec import selection

HELD: dict[str, Any] = {"finalizers": ["other.io/x", "service.kubernetes.io/load-balancer-cleanup"]}
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@cases(
    "found expected",
    ("LB-1-wants", service(), True),
    ("LB-1-wants-other-type", service(type="ClusterIP"), False),
    ("LB-1-wants-node-port", service(type="NodePort"), False),
    ("LB-1-wants-no-type", service(type=None), False),
    ("LB-1-class-foreign", service(loadBalancerClass="example.com/other"), False),
    ("LB-1-class-ours", service(loadBalancerClass="windowbox"), True),
    ("LB-1-class-empty-is-one", service(loadBalancerClass=""), False),
    ("LB-1-class-nonsense", service(loadBalancerClass=["windowbox"]), False),
    ("LB-1-class-not-type", service(type="ClusterIP", loadBalancerClass="windowbox"), False),
)
def test_a_service_wants_a_load_balancer_of_ours(found: Object, expected: bool) -> None:
    assert selection.is_ours(found, ("windowbox",)) is expected


@rule("LB-1-class")
def test_no_class_is_ours_by_itself() -> None:
    assert not selection.is_ours(service(loadBalancerClass="windowbox"), ())


@cases(
    "found expected",
    ("LB-1-cleanup-not-while-wanted", service(metadata=HELD), False),
    ("LB-1-cleanup-deleted", service(metadata=HELD | DELETED), True),
    ("LB-1-cleanup-other-type", service(metadata=HELD, type="ClusterIP"), True),
    ("LB-1-cleanup-not-held", service(metadata=DELETED), False),
    ("LB-1-cleanup-no-list", service(metadata=DELETED | {"finalizers": None}), False),
    ("LB-1-cleanup-never-was", service(type="ClusterIP"), False),
    ("LB-1-foreign-is-left-alone", service(metadata=HELD, loadBalancerClass="example.com/other"), False),
    ("LB-1-foreign-deleted", service(metadata=HELD | DELETED, loadBalancerClass="example.com/other"), True),
)
def test_what_is_ours_no_longer_is_cleaned_up(found: Object, expected: bool) -> None:
    assert selection.needs_cleanup(found) is expected


@given(nonsense)
def test_nonsense_gets_an_answer(found: Object) -> None:
    assert isinstance(selection.is_ours(found, ("windowbox",)), bool)
    assert isinstance(selection.needs_cleanup(found), bool)
