"""Manifests compared with the objects that exist, and changes of owned objects that requeue the owner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windowbox.models.objects import Object, merge
from windowbox.models.refs import (
    API_SERVER,
    IP_POOLS,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    NETWORK_POLICIES,
    PLANE_DEPLOYMENTS,
    SERVICES,
    Resource,
)
from workers.core.owned import ownermapping
from workers.core.owned.manifests import Manifest, differs, excess, manifest

Json = dict[str, Any]

names = st.sampled_from(["app", "role", "to", "from", "ports", "cidr"])
leaves = st.one_of(st.integers(0, 3), st.sampled_from(["TCP", "UDP", "10.0.0.0/16"]))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2), st.dictionaries(names, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
specs = st.dictionaries(names, values, max_size=4)
texts = st.dictionaries(names, st.sampled_from(["", "a", "b"]), max_size=3)
kinds = st.sampled_from([NETWORK_POLICIES, IP_POOLS, SERVICES])


@st.composite
def owners(draw: st.DrawFn) -> list[Json]:
    uids = draw(st.lists(st.sampled_from(["u1", "u2", "u3"]), unique=True, max_size=2))
    return [{"apiVersion": "v1", "kind": "Namespace", "name": f"n-{uid}", "uid": uid} for uid in uids]


@st.composite
def manifests(draw: st.DrawFn, resource: Resource = NETWORK_POLICIES) -> Manifest:
    return manifest(
        resource, "a", "b", labels=draw(texts), owners=draw(owners()) or None, spec=draw(specs)
    )  # fmt: skip


@st.composite
def objects(draw: st.DrawFn) -> Object:
    metadata = {"name": "a", "labels": draw(texts), "annotations": draw(texts), "uid": "x"}
    return Object({"metadata": metadata | {"ownerReferences": draw(owners())}, "spec": draw(specs)})


def written(resource: Resource, found: Object, wanted: Manifest) -> Object:
    """What the API has after server-side apply, and after the patch for what is too much.

    Mappings are laid one over the other, lists replaced; of owners there is one for each uid.
    """
    laid = merge(found.raw, {name: value for name, value in wanted.items() if name != "status"})
    ours = wanted["metadata"].get("ownerReferences", [])
    before = found.metadata.get("ownerReferences", [])
    known = {one["uid"] for one in ours}
    laid["metadata"]["ownerReferences"] = [*(one for one in before if one["uid"] not in known), *ours]
    applied = Object(laid)
    return Object(merge(laid, excess(resource, applied, wanted) or {}))


@given(resource=kinds, found=objects(), wanted=manifests())
def test_a_written_object_does_not_differ_and_keeps_what_others_added(
    resource: Resource, found: Object, wanted: Manifest
) -> None:
    after = written(resource, found, wanted)
    assert not differs(resource, after, wanted)
    assert after.annotations == found.annotations
    assert {**found.labels, **wanted["metadata"].get("labels", {})} == after.labels
    uids = {one["uid"] for one in after.metadata["ownerReferences"]}
    assert uids >= {one["uid"] for one in found.metadata["ownerReferences"]}
    if not differs(resource, found, wanted):
        assert excess(resource, found, wanted) is None


@given(found=objects(), wanted=manifests())
def test_fields_of_others_survive_only_where_the_api_fills_in(found: Object, wanted: Manifest) -> None:
    after = written(SERVICES, found, wanted)
    theirs = {name: value for name, value in found.spec.items() if name not in wanted["spec"]}
    assert {name: after.spec[name] for name in theirs} == theirs
    assert written(NETWORK_POLICIES, found, wanted).spec == wanted["spec"]


RULE = {"from": [{"podSelector": {"matchLabels": {"app": "bastion"}}}], "ports": [{"port": 22}]}
POLICY = manifest(
    NETWORK_POLICIES,
    "a",
    "b",
    labels={"ours": "yes"},
    owners=[{"kind": "Namespace", "name": "n", "uid": "u1"}],
    spec={"podSelector": {"matchLabels": {"app": "machine"}}, "ingress": [RULE]},
)
OTHER = {"kind": "Pod", "name": "p", "uid": "u2"}


OWNERS = POLICY["metadata"]["ownerReferences"]
WIDER = {**RULE, "ports": [{"port": 22, "endPort": 99}]}


@pytest.mark.parametrize(
    ("change", "different"),
    [
        pytest.param({}, False, id="the-same"),
        pytest.param({"metadata": {"labels": {"other": "x"}}}, False, id="label-of-another"),
        pytest.param({"metadata": {"annotations": {"other": "x"}}}, False, id="annotation-of-another"),
        pytest.param({"metadata": {"labels": None}}, True, id="label-gone"),
        pytest.param({"metadata": {"labels": {"ours": "no"}}}, True, id="label-changed"),
        pytest.param({"metadata": {"ownerReferences": None}}, True, id="owner-gone"),
        pytest.param({"metadata": {"ownerReferences": [OTHER, *OWNERS]}}, False, id="another-owner-first"),
        pytest.param({"metadata": {"ownerReferences": [OTHER]}}, True, id="another-owner-instead"),
        pytest.param({"spec": {"egress": [RULE]}}, True, id="rules-of-another-direction"),
        pytest.param({"spec": {"egress": []}}, False, id="no-rules-of-another-direction"),
        pytest.param({"spec": {"ingress": [RULE, RULE]}}, True, id="one-rule-more"),
        pytest.param({"spec": {"ingress": None}}, True, id="rules-gone"),
        pytest.param({"spec": {"ingress": [{"ports": RULE["ports"]}]}}, True, id="a-rule-for-everybody"),
        pytest.param({"spec": {"ingress": [WIDER]}}, True, id="wider-within-a-list"),
        pytest.param({"spec": {"podSelector": {"matchLabels": {"x": "y"}}}}, True, id="a-narrower-selector"),
    ],
)
def test_changes_of_a_policy_that_are_repaired(change: Json, different: bool) -> None:
    found = Object(merge(POLICY, change))
    assert differs(NETWORK_POLICIES, found, POLICY) is different


def test_what_calico_fills_into_a_pool_is_left_alone() -> None:
    wanted = manifest(IP_POOLS, "a", spec={"cidr": "10.0.0.0/16"})
    found = Object(merge(wanted, {"spec": {"blockSize": 26}}))
    assert not differs(IP_POOLS, found, wanted)
    assert excess(IP_POOLS, found, wanted) is None


def test_an_empty_list_is_the_same_as_none() -> None:
    wanted = manifest(NETWORK_POLICIES, "a", "b", spec={"podSelector": {}, "ingress": []})
    found = Object({"metadata": {"name": "a"}, "spec": {"podSelector": {}}})
    assert not differs(NETWORK_POLICIES, found, wanted)
    assert not differs(SERVICES, found, wanted)


UPDATING = {"type": "InPlaceUpdate", "reason": "SelectedForUpdate"}
SERVER: Json = {"metadata": {"name": API_SERVER}}
PROGRESS = {"type": "Progressing", "status": "True"}


def changed(**parts: Any) -> Object:
    return Object({"metadata": {}, "spec": {}, "status": {}, **parts})


@pytest.mark.parametrize(
    ("kind", "after", "matters"),
    [
        pytest.param(MACHINES, {"status": {"conditions": [UPDATING]}}, True, id="A3-R6-updated-in-place"),
        pytest.param(MACHINES, {"status": {"currentStatus": {"phase": "Running"}}}, False, id="phase"),
        pytest.param(MACHINES, {"spec": {"providerID": "x"}}, False, id="provider-id"),
        pytest.param(MACHINE_SETS, {"status": {"replicas": 1}}, True, id="machines-of-a-set"),
        pytest.param(MACHINE_SETS, {"status": {"readyReplicas": 1}}, False, id="ready-machines-of-a-set"),
        pytest.param(MACHINE_DEPLOYMENTS, {"status": {"readyReplicas": 1}}, True, id="numbers"),
        pytest.param(MACHINE_DEPLOYMENTS, {"status": {"conditions": [PROGRESS]}}, True, id="condition"),
        pytest.param(MACHINE_DEPLOYMENTS, {"spec": {"replicas": 1}}, True, id="replicas"),
        pytest.param(PLANE_DEPLOYMENTS, {"status": {"conditions": [PROGRESS]}}, True, id="HC-1-manager"),
        pytest.param(PLANE_DEPLOYMENTS, {"status": {"readyReplicas": 1}}, False, id="ready-managers"),
        pytest.param(
            PLANE_DEPLOYMENTS, {**SERVER, "status": {"readyReplicas": 1}}, False, id="ready-servers"
        ),
        pytest.param(PLANE_DEPLOYMENTS, {**SERVER, "spec": {"replicas": 1}}, True, id="C-10-servers"),
    ],
)
def test_changes_that_matter(kind: Resource, after: dict[str, Any], matters: bool) -> None:
    same = {"metadata": after["metadata"]} if "metadata" in after else {}
    assert ownermapping.matters(kind.id, changed(**same), changed(**after)) is matters


def test_the_time_of_a_condition_does_not_matter() -> None:
    one, other = (
        changed(status={"conditions": [{**PROGRESS, "lastUpdateTime": time}]}) for time in ("now", "then")
    )
    assert not ownermapping.matters(MACHINE_DEPLOYMENTS.id, one, other)
