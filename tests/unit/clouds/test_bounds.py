"""What hostile objects cost: problems, messages and lookups are bounded, whatever a tenant writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from clouds import table
from clouds.frame import admission
from tests.support import cloudobjects
from tests.support.cloudobjects import CLOUDS, provider, shoot

Object = dict[str, Any]
_LONG = "x" * 100_000


def _pools(given: Object, number: int, **fields: Any) -> None:
    (pool,) = provider(given)["workers"]
    provider(given)["workers"] = [{**deepcopy(pool), "name": f"p{i}", **fields} for i in range(number)]


def _infrastructure(given: Object, **fields: Any) -> None:
    provider(given)["infrastructureConfig"].update(fields)


CHANGES: dict[str, Callable[[Object], None]] = {
    "long-range": lambda given: given["spec"]["networking"].update(nodes=_LONG),
    "long-zones": lambda given: _pools(given, 300, zones=[_LONG] * 3),
    "many-zones": lambda given: _pools(given, 1, zones=[f"z{i}" for i in range(20_000)]),
    "many-pools": lambda given: _pools(given, 1000, zones=["z"], volume=None),
    "many-families": lambda given: given["spec"]["networking"].update(ipFamilies=["IPv4"] * 20_000),
    "unknown-fields": lambda given: _infrastructure(given, **{f"f{i}": _LONG for i in range(500)}),
    "long-networks": lambda given: _infrastructure(given, networks={_LONG: _LONG}),
    "many-values": lambda given: given["metadata"].update(annotations={str(i): "" for i in range(200_000)}),
}


@pytest.mark.parametrize("change", [pytest.param(act, id=name) for name, act in CHANGES.items()])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_answer_to_a_hostile_shoot_is_short(cloud: str, change: Callable[[Object], None]) -> None:
    given = shoot(cloud)
    change(given)
    for old in (None, shoot(cloud)):
        found = cloudobjects.problems(cloud, given, old)
        assert len(found) <= 256
        assert max((len(one.message) for one in found), default=0) < 30_000
        assert sum(len(one.message) for one in found) < 512 << 10


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_update_of_many_pools_gets_a_short_answer(cloud: str) -> None:
    new, old = shoot(cloud), shoot(cloud)
    for given, zone in ((new, "a"), (old, "b")):
        _pools(given, 1000, zones=[zone])
    assert len(cloudobjects.problems(cloud, new, old)) <= 256


@pytest.mark.parametrize("cloud", CLOUDS)
def test_many_pools_cause_no_more_lookups(cloud: str) -> None:
    looked_up: Counter[str] = Counter()
    find = cloudobjects.finding(*cloudobjects.example(cloud))

    def counting(kind: str, namespace: str, name: str) -> Any:
        looked_up[kind] += 1
        return find(kind, namespace, name)

    given = shoot(cloud)
    _pools(given, 500)
    admission.problems(table.cloud(cloud), "shoot", given, None, counting)
    admission.mutated(table.cloud(cloud), given, None, counting)
    assert max(looked_up.values()) <= 2


def test_a_shoot_with_too_many_values_is_refused_as_a_whole() -> None:
    given = shoot("aws")
    CHANGES["many-values"](given)
    (problem,) = cloudobjects.problems("aws", given)
    assert problem.message == "the object has more than 100000 values: take out what is not needed any more"
