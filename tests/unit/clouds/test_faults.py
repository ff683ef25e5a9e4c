"""Faults of clouds: their texts and codes, and which calls they hit."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clouds import table
from clouds.frame.operator import existing, faults
from clouds.frame.operator.faults import SetFault

QUOTA, DEPENDENCIES = "ERR_INFRA_QUOTA_EXCEEDED", "ERR_INFRA_DEPENDENCIES"
UNAUTHENTICATED, UNAUTHORIZED = "ERR_INFRA_UNAUTHENTICATED", "ERR_INFRA_UNAUTHORIZED"
RATE, DEPLETED = "ERR_INFRA_RATE_LIMITS_EXCEEDED", "ERR_INFRA_RESOURCES_DEPLETED"
CONFIGURATION = "ERR_CONFIGURATION_PROBLEM"
USUAL = {
    "quota": QUOTA,
    "throttling": RATE,
    "depleted": DEPLETED,
    "missing-principal": CONFIGURATION,
    "unauthorized": UNAUTHORIZED,
    "wrong-credentials": UNAUTHENTICATED,
    "reservation-used": "",
    "image-missing": CONFIGURATION,
    "dependency": DEPENDENCIES,
    "invalid": CONFIGURATION,
}
OTHERWISE: dict[str, dict[str, str | None]] = {
    "alicloud": {"missing-principal": "", "reservation-used": None},
    "gcp": {"depleted": QUOTA},
    "openstack": {"depleted": DEPENDENCIES, "missing-principal": None, "reservation-used": None},
    "equinixmetal": {name: "" for name in USUAL if name != "throttling"} | {"missing-principal": None},
}
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize("cloud", table.TYPES)
def test_each_fault_has_the_code_that_the_extension_finds_in_its_text(cloud: str) -> None:
    wanted = {name: code for name, code in (USUAL | OTHERWISE.get(cloud, {})).items() if code is not None}
    given = table.cloud(cloud).faults
    assert {name: "".join(one.codes) for name, one in given.items()} == wanted


def test_the_page_names_each_fault_with_its_usual_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clouds.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (`ERR_\w+`|none) \|", page, re.MULTILINE))
    assert rows == {name: f"`{code}`" if code else "none" for name, code in USUAL.items()}


def test_the_page_names_each_kind_that_can_be_added() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clouds.md").read_text()
    rows = re.findall(r"^\| *\w* \| `([a-z-]+)`[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    named = [(kind, re.findall(r"`(\w+)`", properties)) for kind, properties in rows]
    kinds = [*existing.OF_ALL.items()]
    kinds += [one for cloud in table.TYPES for one in table.cloud(cloud).existing.items()]
    assert sorted(named) == sorted((kind, list(forms)) for kind, forms in kinds)


@pytest.mark.parametrize(
    ("cloud", "fault", "text"),
    [
        ("aws", "depleted", "InsufficientInstanceCapacity"),
        ("aws", "wrong-credentials", "AuthFailure"),
        ("aws", "unauthorized", "UnauthorizedOperation"),
        ("aws", "dependency", "DependencyViolation"),
        ("aws", "invalid", "InvalidParameterValue"),
        ("azure", "unauthorized", "AuthorizationFailed"),
        ("azure", "depleted", "ZonalAllocationFailed"),
        ("azure", "dependency", "InUseSubnetCannotBeDeleted"),
        ("gcp", "unauthorized", "Error 403"),
        ("gcp", "quota", "QUOTA_EXCEEDED"),
        ("gcp", "depleted", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
        ("openstack", "quota", "VolumeSizeExceedsAvailableQuota"),
        ("openstack", "depleted", "There are not enough hosts available"),
        ("alicloud", "depleted", "Zone.NotOnSale"),
        ("aws", "throttling", "RequestLimitExceeded"),
        *((cloud, "throttling", "Throttling") for cloud in table.TYPES if cloud != "aws"),
    ],
)
def test_texts_are_those_of_the_contract(cloud: str, fault: str, text: str) -> None:
    error = table.cloud(cloud).faults[fault].error()
    assert text in str(error)
    assert str(error).endswith("(played by `windowbox cloud fail`)")
    assert error.retry_after == (30 if fault == "throttling" else None)


@pytest.mark.parametrize(
    ("one", "part", "shoot", "hit"),
    [
        (SetFault("quota"), "dns", "shoot--a", True),
        (SetFault("quota", on="machines"), "machines", "shoot--a", True),
        (SetFault("quota", on="machines"), "dns", "shoot--a", False),
        (SetFault("quota", shoot="shoot--a"), "dns", "shoot--a", True),
        (SetFault("quota", shoot="shoot--a"), "dns", "shoot--b", False),
    ],
    ids=["all", "this-part", "another-part", "this-shoot", "another-shoot"],
)
def test_a_fault_hits_calls_of_its_part_and_its_shoot(
    one: SetFault, part: str, shoot: str, hit: bool
) -> None:
    found, left = faults.called([one], part, shoot)
    assert bool(found) is hit
    assert left == [one]


def test_calls_are_counted_one_by_one() -> None:
    left = [SetFault("depleted", on="machines"), SetFault("quota", times=2), SetFault("invalid", times=1)]
    met = []
    for _ in itertools.repeat(None, 4):
        name, left = faults.called(left, "dns", "shoot--a")
        met.append(name)
        left = faults.decoded(faults.encoded(left))
    assert met == ["quota", "quota", "invalid", ""]
    assert left == [SetFault("depleted", on="machines")]


def test_a_fault_ends_at_its_time() -> None:
    minute = timedelta(minutes=1)
    ended = SetFault("quota", until=(NOW - minute).isoformat())
    later = SetFault("quota", until=(NOW + minute).isoformat())
    assert faults.active([ended, later, SetFault("invalid")], NOW) == [later, SetFault("invalid")]


def test_an_entry_without_faults_is_none() -> None:
    assert faults.encoded([]) is None
    assert faults.decoded(None) == []
