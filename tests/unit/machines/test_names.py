"""Names of MachineSets and Machines."""

from __future__ import annotations

import pytest

from tests.support.machinefacts import template
from tests.support.rules import rule
from workers.machines import names


@pytest.mark.parametrize(
    ("digits", "end"),
    [
        pytest.param("3184902675", "75d8f", id="C3-R1-3184902675"),
        pytest.param("2718281828", "6c5d6", id="C3-R1-2718281828"),
        pytest.param("1059773341", "549fc", id="C3-R1-1059773341"),
        pytest.param("4021876530", "8465d", id="C3-R1-4021876530"),
    ],
)
def test_a_set_is_named_by_its_template(digits: str, end: str) -> None:
    assert names.set_name("pool", digits) == f"pool-{end}"


@rule("C3-R3")
def test_the_hash_depends_on_content_alone() -> None:
    one = {"spec": {"class": {"name": "small"}}, "metadata": {"labels": {"a": "1", "b": "2"}}}
    same = {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": {"class": {"name": "small"}}}
    assert names.template_hash(one) == names.template_hash(same)
    assert names.template_hash(one).isdecimal()
    assert int(names.template_hash(one)) < 2**32


@rule("C3-R4")
def test_a_collision_gives_another_name() -> None:
    assert names.template_hash(template()) != names.template_hash(template(), 1)


@rule("C3-R5")
def test_machines_of_a_set_have_names_of_their_own() -> None:
    found = {names.machine_name("pool-75d8f", "uid", number) for number in range(1000)}
    assert len(found) > 990
    assert all(len(name) == len("pool-75d8f-") + 5 for name in found)
    assert names.machine_name("pool-75d8f", "uid", 7) == names.machine_name("pool-75d8f", "uid", 7)
    assert names.machine_name("pool-75d8f", "uid", 7) != names.machine_name("pool-75d8f", "other", 7)


@rule("L27")
def test_a_long_name_still_fits_a_service() -> None:
    name = names.machine_name("shoot--project--name-with-30-char-pool-of-15-char-z1-75d8f", "uid", 0)
    assert len(f"machine-{name}") <= 63


@rule("L27", "B4-R8")
@pytest.mark.parametrize("length", [54, 55, 56, 61, 200])
def test_names_fit_a_service_and_stay_apart(length: int) -> None:
    one, other = "a" * length, "a" * (length - 1) + "b"
    assert names.pod(one) == names.pod(one)
    assert names.pod(one) != names.pod(other)
    assert len(names.pod(one)) <= 63
    assert names.pod(one).startswith("machine-aaaa")
    assert (names.pod(one) == f"machine-{one}") == (length <= 55)


@rule("L39", "B8-R8")
def test_token_ids_do_not_collide() -> None:
    ids = {names.token_id(f"uid-{number}") for number in range(20_000)}
    # Of three letters there are 19,683 ids; 20,000 of ours are apart but for a rare accident.
    assert len(ids) > 19_990
    assert all((len(one) == 6 and one.isalnum() and one.islower()) or one.isdigit() for one in ids)
