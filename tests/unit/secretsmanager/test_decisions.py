"""Which generated secrets stay, are renewed, rotated or dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.rules import rule
from windowbox.secretsmanager import configs, decisions, generation, secrets
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Config, Usage
from windowbox.secretsmanager.decisions import Policy
from windowbox.secretsmanager.secrets import Stored

CA = Authority("ca")
SERVER = Certificate("server", "server", "ca", Usage.SERVER)
CLIENT = replace(SERVER, name="client", usage=Usage.CLIENT)
AUTH = BasicAuth("auth", validity=timedelta(hours=1))
DAY = 86400


def stored(
    config: str = "auth", name: str = "auth-1", created: float = 0, rotation: str = "", **labels: str
) -> Stored:
    found = {"name": config, secrets.ROTATION: rotation} | {
        key.replace("_", "-"): v for key, v in labels.items()
    }
    return Stored(name=name, uid=name, created=created, labels=found, data={"ca.crt": name.encode()})


def lasting(issued: int, until: int, **about: Any) -> Stored:
    return stored(issued_at_time=str(issued), valid_until_time=str(until), **about)


@pytest.mark.parametrize(
    ("found", "due"),
    [
        pytest.param(lasting(0, 3600), 2880, id="Z-4-an-hour-by-percentage"),
        pytest.param(lasting(0, 10 * DAY), 8 * DAY, id="Z-4-ten-days-by-percentage"),
        pytest.param(lasting(0, 30 * DAY), 20 * DAY, id="WF-60-a-month-ten-days-before"),
        pytest.param(lasting(0, 3650 * DAY), 2920 * DAY, id="Z-4-a-decade-by-percentage"),
        pytest.param(stored(), None, id="Z-4-no-times"),
    ],
)
def test_secrets_are_renewed_in_time(found: Stored, due: int | None) -> None:
    assert decisions.renewal_time(found) == due


@pytest.mark.parametrize(
    ("config", "found", "policy", "now", "rotation"),
    [
        pytest.param(AUTH, [], Policy(), 5, "", id="Z-1-first"),
        pytest.param(AUTH, [lasting(0, 3600)], Policy(), 2879, "", id="Z-4-not-yet"),
        pytest.param(AUTH, [lasting(0, 3600)], Policy(), 2880, "2880", id="Z-4-due"),
        pytest.param(AUTH, [lasting(0, 3600, rotation="7")], Policy(), 9, "7", id="Z-4-renewed-before"),
        pytest.param(AUTH, [lasting(0, 3600)], Policy(rotation=4), 9, "", id="Z-5-passwords-do-not-rotate"),
        pytest.param(CA, [lasting(0, 10, config="ca")], Policy(), 99, "", id="Z-4-no-authority"),
        pytest.param(CA, [lasting(0, 10, config="ca")], decisions.WEBHOOKS, 99, "99", id="WF-60-webhook"),
        pytest.param(CA, [stored("ca", rotation="3")], Policy(rotation=8), 99, "8", id="Z-5-lock-step"),
        pytest.param(CA, [], Policy(rotation=8), 99, "8", id="Z-5-first-of-a-rotated-shoot"),
    ],
)
def test_the_rotation_of_a_secret(
    config: Config, found: list[Stored], policy: Policy, now: int, rotation: str
) -> None:
    assert decisions.rotation_time(config, found, policy, now) == rotation


AUTHORITY = generation.authority(CA, "ca", datetime(1970, 1, 1, tzinfo=UTC))


def authority(issued: int, until: int, **about: Any) -> Stored:
    return replace(lasting(issued, until, config="ca", **about), data=AUTHORITY)


CURRENT = authority(1000, 9 * DAY, name="ca-2", created=1000.0)
OLD = authority(0, 9 * DAY, name="ca-1")
OLDER = authority(0, 9 * DAY, name="ca-0", created=-5.0)
EXPIRED = authority(0, 1500, name="ca-1")
BROKEN = replace(OLD, data={**AUTHORITY, "ca.key": b""})


@pytest.mark.parametrize(
    ("found", "policy", "now", "old"),
    [
        pytest.param([CURRENT], Policy(), 2000, None, id="Z-5-none"),
        pytest.param([OLDER, CURRENT, OLD], Policy(), 2000, OLD, id="Z-5-the-last-one"),
        pytest.param([CURRENT, OLD], Policy(drop_old=True), 2000, None, id="Z-5-completing"),
        pytest.param([CURRENT, EXPIRED], Policy(), 2000, None, id="Z-5-expired"),
        pytest.param([OLDER, CURRENT, BROKEN], Policy(), 2000, OLDER, id="Z-5-broken"),
        pytest.param([CURRENT, OLD], decisions.WEBHOOKS, 999 + DAY, OLD, id="WF-61-within-a-day"),
        pytest.param([CURRENT, OLD], decisions.WEBHOOKS, 1000 + DAY, None, id="WF-61-after-a-day"),
    ],
)
def test_the_old_authority_is_trusted_for_as_long_as_needed(
    found: list[Stored], policy: Policy, now: int, old: Stored | None
) -> None:
    assert decisions.old_authority(CA, CURRENT, found, policy, now) == old


@pytest.mark.parametrize(
    ("config", "policy", "signs"),
    [
        pytest.param(SERVER, Policy(), OLD, id="Z-5-servers-by-the-old"),
        pytest.param(CLIENT, Policy(), CURRENT, id="Z-5-clients-by-the-current"),
        pytest.param(SERVER, decisions.WEBHOOKS, CURRENT, id="WF-61-webhooks-by-the-current"),
    ],
)
def test_who_signs_while_there_are_two(config: Certificate, policy: Policy, signs: Stored) -> None:
    assert decisions.signer(config, CURRENT, OLD, policy) == signs


def rotating(authorities: object) -> dict[str, Any]:
    return {"status": {"credentials": {"rotation": {"certificateAuthorities": authorities}}}}


@pytest.mark.parametrize(
    ("phase", "completes"),
    [
        pytest.param("Preparing", False, id="Z-5-preparing"),
        pytest.param("PreparingWithoutWorkersRollout", False, id="Z-5-without-rollout"),
        pytest.param("WaitingForWorkersRollout", False, id="Z-5-waiting-for-rollout"),
        pytest.param("Prepared", False, id="Z-5-prepared"),
        pytest.param("Completing", True, id="Z-5-completing"),
        pytest.param("Completed", True, id="Z-5-completed"),
    ],
)
def test_the_policy_follows_the_phase_of_the_shoot(phase: str, completes: bool) -> None:
    shoot = rotating({"phase": phase, "lastInitiationTime": "2023-11-14T22:13:20Z"})
    assert decisions.Policy.of_shoot(shoot) == Policy(rotation=1700000000, drop_old=completes)


ZERO = "0001-01-01T00:00:00"


@pytest.mark.parametrize(
    "shoot",
    [
        pytest.param({}, id="Z-5-no-status"),
        pytest.param({"status": None}, id="Z-5-null"),
        pytest.param({"status": {"credentials": "x"}}, id="Z-5-text"),
        pytest.param(rotating([1]), id="Z-5-a-list"),
        pytest.param(rotating({"lastInitiationTime": "soon"}), id="Z-5-no-time"),
        pytest.param(rotating({"lastInitiationTime": 7, "phase": [1]}), id="Z-5-wrong-types"),
        pytest.param(
            rotating({"lastInitiationTime": "2026-02-30T99:00:00Z", "phase": {"a": 1}}), id="Z-5-day"
        ),
        pytest.param(rotating({"lastInitiationTime": f"{ZERO}Z", "phase": "Preparing"}), id="Z-5-zero-time"),
        pytest.param(rotating({"lastInitiationTime": ZERO, "phase": ""}), id="Z-5-zero-time-of-nowhere"),
    ],
)
def test_a_shoot_without_a_rotation(shoot: Mapping[str, Any]) -> None:
    assert decisions.Policy.of_shoot(shoot) == Policy()


@rule("Z-1")
def test_the_name_tells_config_signer_and_rotation() -> None:
    assert decisions.secret_name("ca", "1", "", "") == "ca-6b86b273"
    assert decisions.secret_name("ca", "1", "", "1700000000") == "ca-6b86b273-3f3b4"
    assert decisions.secret_name("ca", "1", "2", "") == decisions.secret_name("ca", "12", "", "")


@rule("Z-1", "Z-2")
def test_the_checksum_changes_exactly_if_the_config_does() -> None:
    lists: list[dict[str, Any]] = [{"dns_names": ("a",)}, {"ip_addresses": ("10.0.0.1",)}]
    others = [{"common_name": "other"}, *lists, {"organizations": ("a",)}]
    others += [{"validity": timedelta(days=1)}, {"publish_authority": True}]
    changed: list[Config] = [SERVER, CLIENT, *(replace(SERVER, **other) for other in others), CA, AUTH]
    checksums = [configs.checksum(one) for one in changed]
    assert len(set(checksums)) == len(changed)
    assert all(0 <= int(one) < 2**64 for one in checksums)
    assert configs.checksum(replace(SERVER)) == configs.checksum(SERVER)
    assert configs.checksum(replace(SERVER, authority="other")) != configs.checksum(SERVER)


@rule("Z-1", "Z-2")
def test_the_checksums_of_authorities_and_passwords_are_gardeners() -> None:
    """As its provider-local 1.150 has them."""
    for config, checksum in (
        (Authority("ca-provider-local-controlplane", persist=True), "18016912269135249284"),
        (Authority("ca-provider-local-webhook", timedelta(days=30)), "15579132457960797395"),
        (BasicAuth("provider-local-dummy-auth", validity=timedelta(hours=1)), "9207884496607812683"),
    ):
        assert configs.checksum(config) == checksum


@rule("Z-3")
def test_restored_secrets_are_ordered_by_their_rotation() -> None:
    """They were all created in the same second."""
    restored = [stored("ca", "b", 5, "1700000000"), stored("ca", "a", 5, "")]
    assert [one.name for one in sorted(restored, key=lambda one: one.age)] == ["a", "b"]
    newest = secrets.newest(restored)
    assert newest is not None
    assert newest.name == "b"


@rule("Z-2")
def test_labels_that_are_not_wanted_are_removed() -> None:
    found = {"name": "ca", "renew-after-validity-percentage": "80", "persist": "true"}
    assert secrets.label_changes(found, {"name": "ca", "persist": "true"}) == {
        "renew-after-validity-percentage": None
    }
    assert secrets.label_changes(found, {**found, "persist": "false"}) == {"persist": "false"}
    assert secrets.label_changes(found, found) == {}


@rule("Z-2")
def test_the_checksum_of_an_authority_fits_into_a_label() -> None:
    checksum = secrets.authority_checksum(stored("ca"))
    assert len(checksum) == 63
    assert secrets.data_checksum(stored("ca").data).startswith(checksum)


def test_secret_data_is_in_no_representation() -> None:
    assert "ca.crt" not in repr(stored("ca"))
