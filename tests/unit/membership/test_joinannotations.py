"""What marks on Namespaces ask for, and what that means for those who take part."""

from __future__ import annotations

from typing import Any

import pytest

from bus.clusters.registry import MachinePlace, Member
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, SERVICES, SecretKey
from workers.core import joinannotations
from workers.core.joinannotations import Unusable
from workers.kinds.membership.clusterjoining import Change, changes, undecided

NAME = "shoot--local--a"
KUBECONFIG, MACHINES, JOIN = (
    "cluster.windowbox/kubeconfig",
    "cluster.windowbox/machines",
    "cluster.windowbox/join",
)


def namespace(
    annotations: dict[str, Any] | None = None, labels: dict[str, str] | None = None, **metadata: str
) -> Object:
    found: dict[str, Any] = {"name": NAME, "annotations": annotations, "labels": labels}
    return Object({"metadata": found | metadata})


def member(secret: str = "kubeconfig", key: str = "kubeconfig", machines: str = NAME) -> Member:
    place = SecretKey(namespace=NAME, name=secret, key=key)
    return Member(id=NAME, secret=place, machines=MachinePlace(namespace=machines), origin="namespace")


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        pytest.param(namespace(), None, id="no-mark"),
        pytest.param(namespace({KUBECONFIG: "admin"}), member("admin"), id="annotation"),
        pytest.param(namespace({KUBECONFIG: " admin/config "}), member("admin", "config"), id="with-a-key"),
        pytest.param(namespace(labels={JOIN: "true"}), member("usual"), id="label"),
        pytest.param(namespace(labels={JOIN: "false"}), None, id="label-that-says-no"),
        pytest.param(namespace({KUBECONFIG: "admin"}, {JOIN: "true"}), member("admin"), id="both"),
        pytest.param(
            namespace({KUBECONFIG: "admin", MACHINES: "infra-a"}),
            member("admin", machines="infra-a"),
            id="machines-elsewhere",
        ),
        pytest.param(
            namespace({KUBECONFIG: "admin"}, deletionTimestamp="2026-01-01T00:00:00Z"),
            None,
            id="being-deleted",
        ),
    ],
)
def test_what_a_namespace_asks_for(found: Object, asked: Member | None) -> None:
    assert joinannotations.requested_member(found, "usual") == asked


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(namespace({KUBECONFIG: ""}), "write SECRET or SECRET/KEY", id="empty"),
        pytest.param(namespace({KUBECONFIG: "other/ad/min"}), "write SECRET or SECRET/KEY", id="a-path"),
        pytest.param(namespace({KUBECONFIG: "admin/"}), "write SECRET or SECRET/KEY", id="half-a-key"),
        pytest.param(namespace({KUBECONFIG: "x" * 10_000}), "'" + "x" * 64 + "…'", id="very-long"),
        pytest.param(namespace({KUBECONFIG: "UPPER"}), "'UPPER'", id="upper-case"),
        pytest.param(
            namespace({KUBECONFIG: "admin", MACHINES: "a/b"}), "write the name of a Namespace", id="machines"
        ),
        pytest.param(namespace({KUBECONFIG: "admin"}, name="runtime"), "can be called runtime", id="runtime"),
    ],
)
def test_marks_that_cannot_be_followed_are_explained(found: Object, why: str) -> None:
    asked = joinannotations.requested_member(found, "usual")
    assert isinstance(asked, Unusable)
    assert why in asked.why
    assert len(asked.why) < 200


def test_slices_are_watched_only_where_pods_are_reachable() -> None:
    assert joinannotations.with_kinds(member(), direct=False).kinds == (SERVICES.id, NODES.id)
    assert joinannotations.with_kinds(member(), direct=True).kinds == (
        SERVICES.id,
        NODES.id,
        ENDPOINT_SLICES.id,
    )


OURS, MOVED = member(), member("another")
THEIRS = Member(id=NAME, file="kubeconfig")


@pytest.mark.parametrize(
    ("wanted", "found", "all_known", "change"),
    [
        pytest.param(OURS, None, True, Change(NAME, None, OURS), id="joins"),
        pytest.param(OURS, None, False, Change(NAME, None, OURS), id="joins-though-not-all-is-known"),
        pytest.param(OURS, OURS, True, None, id="stays"),
        pytest.param(MOVED, OURS, True, Change(NAME, OURS, MOVED), id="moves"),
        pytest.param(None, OURS, True, Change(NAME, OURS, None), id="leaves"),
        pytest.param(None, OURS, False, None, id="is-not-taken-for-gone"),
        pytest.param(None, THEIRS, True, None, id="a-person-let-it-join"),
        pytest.param(OURS, THEIRS, True, None, id="a-person-let-it-join-before"),
    ],
)
def test_who_joins_and_who_leaves(
    wanted: Member | None, found: Member | None, all_known: bool, change: Change | None
) -> None:
    asked = {NAME: wanted} if wanted else {}
    there = {NAME: found} if found else {}
    assert changes(asked, there, all_known=["namespace"] if all_known else []) == ([change] if change else [])


BY_CONTROLPLANE = OURS.model_copy(update={"origin": "controlplane"})


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(None, OURS, id="no-mark-that-can-be-followed"),
        pytest.param(BY_CONTROLPLANE, OURS, id="with-a-control-plane"),
        pytest.param(BY_CONTROLPLANE, None, id="with-a-control-plane-only"),
    ],
)
def test_clusters_that_are_left_alone_neither_join_nor_leave(
    wanted: Member | None, found: Member | None
) -> None:
    asked = {NAME: wanted} if wanted else {}
    there = {NAME: found} if found else {}
    everything = ["namespace", "controlplane"]
    assert changes(asked, there, all_known=everything)
    assert changes(asked, there, all_known=everything, left_alone={NAME}) == []


@pytest.mark.parametrize(
    ("found", "marked", "unknown", "stays"),
    [
        pytest.param(OURS, [], {"namespace": [NAME]}, True, id="large-namespace"),
        pytest.param(OURS, [], {"controlplane": [NAME]}, False, id="without-its-mark"),
        pytest.param(BY_CONTROLPLANE, [], {"controlplane": [NAME]}, True, id="large-control-plane"),
        pytest.param(BY_CONTROLPLANE, [NAME], {"controlplane": [NAME]}, False, id="with-a-mark"),
    ],
)
def test_no_cluster_leaves_because_an_object_is_too_large_for_the_bus(
    found: Member, marked: list[str], unknown: dict[str, list[str]], stays: bool
) -> None:
    assert undecided({NAME: found}, marked, unknown) == ({NAME} if stays else set())
