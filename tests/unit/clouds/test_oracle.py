"""What updates of Shoots do: golden tables, in which each field of each cloud has a row."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from pydantic import BaseModel

from clouds import cases, table
from clouds.frame.changes import oracle
from clouds.frame.changes.differences import differences
from clouds.frame.changes.effects import Kind
from tests.unit.clouds import test_cases
from tests.unit.clouds.oracle import goldens
from windowbox.errors import Malformed

_ROWS = [row for cloud in table.TYPES for row in goldens.rows(cloud)]
_PROVIDER = "spec.provider"
_POOL_FIELDS = (
    *("annotations", "caBundle", "clusterAutoscaler", "cri", "dataVolumes[].encrypted", "dataVolumes[].name"),
    *("dataVolumes[].size", "dataVolumes[].type", "kubeletDataVolumeName", "kubernetes.kubelet", "labels"),
    *("kubernetes.version", "machine.architecture", "machine.image.version", "machine.type", "name", "zones"),
    *("machineControllerManager", "maxSurge", "maxUnavailable", "maximum", "minimum", "priority", "sysctls"),
    *("systemComponents", "taints", "updateStrategy", "volume.encrypted", "volume.size", "volume.type"),
)
"""Of a pool of a Shoot, as Gardener's API has them."""


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row.rule}+{row.cloud}-{row.name}".lstrip("+"))
def test_an_update_does_what_the_golden_table_says(row: goldens.Row) -> None:
    assert sorted(map(goldens.spelled, row.found())) == sorted(row.effects)


@pytest.mark.parametrize("cloud", table.TYPES)
def test_each_field_has_a_row(cloud: str) -> None:
    changes = table.changes(cloud)
    wanted = {f"{_PROVIDER}.workers[].{name}" for name in _POOL_FIELDS}
    for name, model in (
        ("infrastructureConfig", changes.infrastructure),
        ("controlPlaneConfig", changes.control_plane),
        ("workers[].providerConfig", changes.worker),
    ):
        if model is not None:
            wanted |= {*_fields(model, f"{_PROVIDER}.{name}")}
    shown = {one for row in goldens.rows(cloud) for one in _changed(row)}

    assert {one for one in wanted if not any(_shows(row, one) for row in shown)} == set()


def _fields(model: type[BaseModel], path: str) -> Iterator[str]:
    """The paths of all fields that hold no others."""
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}"
        inner = [one for one in _types(field.annotation) if isinstance(one, type)]
        models = [one for one in inner if issubclass(one, BaseModel)]
        if models:
            yield from _fields(models[0], f"{here}[]" if list in inner else here)
        elif name not in ("api_version", "kind"):
            yield here


def _types(annotation: Any) -> list[Any]:
    parts = [one for part in getattr(annotation, "__args__", ()) for one in _types(part)]
    return [getattr(annotation, "__origin__", annotation), *parts]


def _changed(row: goldens.Row) -> Iterator[str]:
    yield from (one[-1].pattern for one in differences(row.old, row.new))


def _shows(changed: str, field: str) -> bool:
    """Elements of lists are told apart by their names."""
    return changed.startswith((f"{field}.", f"{field}[")) or changed in (field, field.removesuffix(".name"))


def _first(cloud: str, name: str) -> goldens.Row:
    return next(row for row in goldens.rows(cloud) if row.name == name)


def test_effects_tell_values_pools_and_zones_and_come_worst_first() -> None:
    lasting, removes, adds = _first("aws", "zone-of-pool-added").found()

    assert [lasting.kind, removes.kind, adds.kind] == [Kind.LASTING, Kind.REMOVES, Kind.ADDS]
    assert (adds.old, adds.new) == (["eu-west-1a"], ["eu-west-1a", "eu-west-1b"])
    assert (adds.pools, adds.zones) == (("a",), ("eu-west-1b",))
    assert adds.why == "minimum of machines: 0 → 1 in eu-west-1b"
    assert removes.why == "maximum of machines: 4 → 2 in eu-west-1a"


def test_zones_of_pools_cannot_be_taken_back_where_the_check_ends_before_them() -> None:
    row = _first("aws", "zone-added")
    row.new["spec"]["provider"]["workers"][0]["zones"].append("eu-west-1c")

    found = [one.path for one in row.found() if one.kind is Kind.LASTING]

    assert found == ["networks.zones", "spec.provider.workers[0].zones"]


def test_another_order_of_volumes_is_another_hash() -> None:
    """AWS hashes their sizes in the order of the pool."""
    row = _first("aws", "another-volume")
    row.new["spec"]["provider"]["workers"][0]["dataVolumes"][1]["size"] = "30Gi"
    former = row._replace(old=deepcopy(row.new))
    former.old["spec"]["provider"]["workers"][0]["dataVolumes"].reverse()

    assert {(one.kind, one.path) for one in former.found()} == {
        (Kind.ROLLS, "spec.provider.workers[a].dataVolumes[data].size"),
        (Kind.ROLLS, "spec.provider.workers[a].dataVolumes[more].size"),
    }


def test_another_number_of_fault_domains_is_another_scale_set() -> None:
    """AZU-W5."""
    row = _first("azure", "nothing")
    for shoot in (row.old, row.new):
        shoot["spec"]["provider"]["infrastructureConfig"]["zoned"] = False
        for pool in shoot["spec"]["provider"]["workers"]:
            pool["zones"] = []
    profile = deepcopy(row.objects["CloudProfile", "", "azure"])
    profile["spec"]["providerConfig"]["countFaultDomains"][0]["count"] = 2

    found = oracle.effects(
        table.cloud("azure"), table.changes("azure"), row.old, row.new, lambda *_: profile, row.find
    )

    assert [(one.kind, one.path, one.pools) for one in found] == [
        (Kind.ROLLS, "CloudProfile.countFaultDomains", ("a", "b"))
    ]


@pytest.mark.parametrize(
    ("immutability", "effects"),
    [
        pytest.param({"locked": True}, ["lasting", "in-place"], id="GCP-B3+locked"),
        pytest.param({"retentionPeriod": "48h"}, ["in-place"], id="GCP-B3+longer"),
        pytest.param({"retentionPeriod": "1h"}, ["refused"], id="GCP-B2+short"),
        pytest.param({}, [], id="GCP-B3+nothing"),
    ],
)
def test_the_lock_of_a_backup_bucket_stays(immutability: dict[str, Any], effects: list[str]) -> None:
    def seed(**more: Any) -> dict[str, Any]:
        policy = {"retentionType": "bucket", "retentionPeriod": "24h", **more}
        head = {"apiVersion": "gcp.provider.extensions.gardener.cloud/v1alpha1", "kind": "BackupBucketConfig"}
        return {"spec": {"backup": {"provider": "gcp", "providerConfig": {**head, "immutability": policy}}}}

    found = oracle.effects_of_seed(table.cloud("gcp"), seed(), seed(**immutability))

    assert [str(one.kind) for one in found] == effects


@pytest.mark.parametrize(
    "new",
    [
        pytest.param({"spec": "x"}, id="spec"),
        pytest.param({"spec": {"provider": {"workers": "x"}}}, id="workers"),
        pytest.param({"spec": {"kubernetes": {"version": "new"}}}, id="version"),
        pytest.param({"metadata": 1}, id="metadata"),
    ],
)
@pytest.mark.parametrize("cloud", table.TYPES)
def test_a_bad_shoot_is_refused(cloud: str, new: dict[str, Any]) -> None:
    row = _first(cloud, "nothing")

    assert {one.kind for one in row._replace(new=new).found()} == {Kind.REFUSED}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        pytest.param("minimum", "many", "pool 'a': minimum", id="minimum"),
        pytest.param(
            "kubernetes", {"kubelet": {"kubeReserved": {"cpu": "all"}}}, "no quantity", id="quantity"
        ),
        pytest.param("labels", {str(i): "x" for i in range(1_001)}, "split it", id="many-fields"),
    ],
)
def test_what_the_oracle_cannot_read_is_an_error(field: str, value: object, message: str) -> None:
    row = _first("gcp", "nothing")
    row.new["spec"]["provider"]["workers"][0][field] = value

    with pytest.raises(Malformed, match=message):
        row.found()


@pytest.mark.parametrize(
    ("pools", "zones", "message"),
    [
        pytest.param(101, 1, "has 101 pools: there may be 100", id="pools"),
        pytest.param(51, 10, "have 510 zones: there may be 500", id="zones"),
    ],
)
def test_too_many_pools_and_zones_are_an_error(pools: int, zones: int, message: str) -> None:
    row = _first("gcp", "nothing")
    pool = row.new["spec"]["provider"]["workers"][0]
    many = [{**pool, "name": str(i), "zones": ["europe-west1-b"] * zones} for i in range(pools)]
    row.new["spec"]["provider"]["workers"] = many

    with pytest.raises(Malformed, match=message):
        row.found()


@test_cases.needs_cases
@pytest.mark.parametrize("cloud", [one for one in table.TYPES if one != "equinixmetal"])
def test_the_oracle_refuses_what_the_real_extension_refuses(cloud: str) -> None:
    """And what Gardener refuses; all else has an answer."""
    wrong = {}
    for case, expected in test_cases.read(cloud):
        if case["about"] == "shoot-update":
            find = cases.lookup(case)
            changes = table.changes(cloud)
            try:
                found = oracle.effects(table.cloud(cloud), changes, case["old"], case["object"], find, find)
            except Malformed:  # the stored Shoot cannot be read
                continue
            if any(one.kind is Kind.REFUSED for one in found) < bool(expected["errors"]):
                wrong[case["id"]] = found

    assert wrong == {}
