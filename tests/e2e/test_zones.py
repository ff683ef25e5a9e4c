"""Names, types, zones and keys: what ends up in which name server."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from tests.e2e import zones
from tests.e2e.client import Space, failed
from tests.e2e.smallworld import INNER, KEYED, SmallWorld
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.models.refs import SECRETS


@cases(
    "record_type values found",
    ("N-11-a", "A", ["10.0.0.2", "10.0.0.1"], ["10.0.0.1", "10.0.0.2"]),
    ("N-13-mapped", "A", ["::ffff:10.0.0.1"], ["10.0.0.1"]),
    ("N-11-aaaa", "AAAA", ["2001:db8::1"], ["2001:db8::1"]),
    ("N-13-cname", "CNAME", ["elsewhere.example"], ["elsewhere.example."]),
    ("N-12+B.2-txt", "TXT", ["v=1; a b"], ['"v=1; a b"']),
)
def test_every_type_is_served(
    world: SmallWorld, space: Space, record_type: str, values: list[str], found: list[str]
) -> None:
    record = space.served(values=values, record_type=record_type)
    assert zones.answers(world.named, record.fqdn, record_type) == found
    assert zones.ttl(world.named, record.fqdn, record_type) == 120
    record.delete()
    record.until_gone()
    assert zones.answers(world.named, record.fqdn, record_type) == []


@rule("N-11", "N-16")
def test_both_families_of_a_name_coexist(world: SmallWorld, space: Space) -> None:
    four = space.served()
    name = four.fqdn
    space.served(name, ["2001:db8::1"], record_type="AAAA", ttl=60)
    four.delete()
    four.until_gone()
    assert zones.answers(world.named, name) == []
    assert zones.answers(world.named, name, "AAAA") == ["2001:db8::1"]
    assert zones.ttl(world.named, name, "AAAA") == 60


@rule("N-11")
def test_a_wildcard_answers_for_all_below(world: SmallWorld, space: Space) -> None:
    name = space.name()
    space.served(f"*.{name}")
    assert zones.answers(world.named, f"anything.{name}") == ["10.0.0.1"]


@rule("N-16", "B.3")
def test_either_of_two_equal_records_may_go(world: SmallWorld, space: Space) -> None:
    name = space.name()
    twins = [space.served(name) for _ in range(2)]
    for twin, left in zip(twins, (["10.0.0.1"], []), strict=True):
        twin.delete()
        twin.until_gone()
        assert zones.answers(world.named, name) == left


@rule("N-16")
def test_equal_names_in_other_zones_do_not_conflict(world: SmallWorld, space: Space) -> None:
    name = space.name(zone=INNER)
    outside = space.served(name, zone=world.named.zone)
    space.served(name)
    outside.delete()
    outside.until_gone()
    assert zones.answers(world.named, name) == []
    assert zones.answers(world.others[INNER], name) == ["10.0.0.1"]


@rule("N-10")
def test_a_record_moves_to_the_closest_zone(world: SmallWorld, space: Space) -> None:
    inner, name = world.others[INNER], space.name(zone=INNER)
    record = space.served(name)
    assert record.read().status["zone"] == INNER
    assert zones.answers(inner, name) == ["10.0.0.1"]
    found = record.until_ready(record.ask("reconcile", zone=world.named.zone))
    assert found.status["zone"] == world.named.zone
    assert zones.answers(inner, name) == []
    assert zones.answers(world.named, name) == ["10.0.0.1"]


@rule("A-4", "N-16")
def test_a_former_name_stays_that_another_record_needs(world: SmallWorld, space: Space) -> None:
    before, after = space.name(), space.name()
    space.served(before)
    record = space.served(before, ["10.0.0.2"])
    record.until_ready(record.ask("reconcile", name=after))
    zones.until(world.named, before, ["10.0.0.1"])
    assert zones.answers(world.named, after) == ["10.0.0.2"]


@rule("N-14", "T-4")
def test_a_deleted_record_leaves_its_last_zone(world: SmallWorld, space: Space) -> None:
    inner, name = world.others[INNER], space.name(zone=INNER)
    record = space.served(name)
    record.patch({"spec": {"zone": world.named.zone}})
    record.delete()
    record.until_gone()
    assert zones.answers(inner, name) == []


def secret(space: Space, data: Mapping[str, str]) -> dict[str, str]:
    """Make a Secret; returns a reference to it."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    space.create(SECRETS, {"metadata": {"name": "dns"}, "data": encoded})
    return {"name": "dns", "namespace": space.namespace}


@rule("N-10", "B.4")
def test_settings_allow_keys_from_the_records_secret(world: SmallWorld, space: Space) -> None:
    server, name = world.others[KEYED], space.name(zone=KEYED)
    assert server.key
    good = {"TSIGKeyName": server.key.name, "TSIGSecret": server.key.secret}
    record = space.served(name, secretRef=secret(space, good))
    assert zones.answers(server, name) == ["10.0.0.1"]
    record.delete()
    record.until_gone()
    assert zones.answers(server, name) == []


@cases(
    "data said",
    ("missing", None, "Secret {space}/dns does not exist"),
    ("empty", {}, "the Secret has no TSIGKeyName"),
    ("nonsense", {"TSIGKeyName": "guest", "TSIGSecret": "&"}, "TSIGSecret in the Secret is"),
)
def test_an_unusable_key_is_a_configuration_error(
    space: Space, data: dict[str, str] | None, said: str
) -> None:
    where = {"name": "dns", "namespace": space.namespace}
    reference = where if data is None else secret(space, data)
    error = space.record(space.name(zone=KEYED), secretRef=reference).until(failed)
    assert error.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert said.format(space=space.namespace) in error.status["lastError"]["description"]
