"""Decisions to keep, renew, rotate or drop generated secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.cases import cases
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


@cases(
    "found due",
    ("Z-4-an-hour-by-percentage", lasting(0, 3600), 2880),
    ("Z-4-ten-days-by-percentage", lasting(0, 10 * DAY), 8 * DAY),
    ("WF-60-a-month-ten-days-before", lasting(0, 30 * DAY), 20 * DAY),
    ("Z-4-a-decade-by-percentage", lasting(0, 3650 * DAY), 2920 * DAY),
    ("Z-4-no-times", stored(), None),
)
def test_secrets_are_renewed_in_time(found: Stored, due: int | None) -> None:
    assert decisions.renewal_time(found) == due


@cases(
    "config found policy now rotation",
    ("Z-1-first", AUTH, [], Policy(), 5, ""),
    ("Z-4-not-yet", AUTH, [lasting(0, 3600)], Policy(), 2879, ""),
    ("Z-4-due", AUTH, [lasting(0, 3600)], Policy(), 2880, "2880"),
    ("Z-4-renewed-before", AUTH, [lasting(0, 3600, rotation="7")], Policy(), 9, "7"),
    ("Z-5-passwords-do-not-rotate", AUTH, [lasting(0, 3600)], Policy(rotation=4), 9, ""),
    ("Z-4-no-authority", CA, [lasting(0, 10, config="ca")], Policy(), 99, ""),
    ("WF-60-webhook", CA, [lasting(0, 10, config="ca")], decisions.WEBHOOKS, 99, "99"),
    ("Z-4-not-valid-yet", AUTH, [lasting(40 * DAY, 80 * DAY)], Policy(), 9, "9"),
    ("Z-4-a-clock-a-little-ahead", AUTH, [lasting(300, 80 * DAY, rotation="7")], Policy(), 0, "7"),
    (
        "WF-60-the-former-counts-again",
        CA,
        [
            lasting(40 * DAY, 80 * DAY, config="ca", rotation=str(40 * DAY)),
            lasting(0, 30 * DAY, config="ca", rotation="3"),
        ],
        decisions.WEBHOOKS,
        9,
        "3",
    ),
    ("Z-5-lock-step", CA, [stored("ca", rotation="3")], Policy(rotation=8), 99, "8"),
    ("Z-5-first-of-a-rotated-shoot", CA, [], Policy(rotation=8), 99, "8"),
)
def test_rotation_times(config: Config, found: list[Stored], policy: Policy, now: int, rotation: str) -> None:
    assert decisions.rotation_time(config, found, policy, now) == rotation


AUTHORITY = generation.authority(CA, "ca", datetime(1970, 1, 1, tzinfo=UTC))


def authority(issued: int, until: int, **about: Any) -> Stored:
    return replace(lasting(issued, until, config="ca", **about), data=AUTHORITY)


CURRENT = authority(1000, 9 * DAY, name="ca-2", created=1000.0)
OLD = authority(0, 9 * DAY, name="ca-1")
OLDER = authority(0, 9 * DAY, name="ca-0", created=-5.0)
EXPIRED = authority(0, 1500, name="ca-1")
BROKEN = replace(OLD, data={**AUTHORITY, "ca.key": b""})


@cases(
    "found policy now old",
    ("Z-5-none", [CURRENT], Policy(), 2000, None),
    ("Z-5-the-last-one", [OLDER, CURRENT, OLD], Policy(), 2000, OLD),
    ("Z-5-completing", [CURRENT, OLD], Policy(drop_old=True), 2000, None),
    ("Z-5-expired", [CURRENT, EXPIRED], Policy(), 2000, EXPIRED),
    ("Z-5-rather-a-valid-one", [OLDER, CURRENT, EXPIRED], Policy(), 2000, OLDER),
    ("WF-61-by-a-clock-ahead", [CURRENT, EXPIRED], decisions.WEBHOOKS, 2000, EXPIRED),
    ("Z-5-broken", [OLDER, CURRENT, BROKEN], Policy(), 2000, OLDER),
    ("WF-61-within-a-day", [CURRENT, OLD], decisions.WEBHOOKS, 999 + DAY, OLD),
    ("WF-61-after-a-day", [CURRENT, OLD], decisions.WEBHOOKS, 1000 + DAY, None),
)
def test_the_old_authority_is_trusted_for_as_long_as_needed(
    found: list[Stored], policy: Policy, now: int, old: Stored | None
) -> None:
    assert decisions.old_authority(CA, CURRENT, found, policy, now) == old


@cases(
    "config policy old signs",
    ("Z-5-servers-by-the-old", SERVER, Policy(), OLD, OLD),
    ("Z-5-servers-never-by-an-expired-one", SERVER, Policy(), EXPIRED, CURRENT),
    ("Z-5-clients-by-the-current", CLIENT, Policy(), OLD, CURRENT),
    ("WF-61-webhooks-by-the-current", SERVER, decisions.WEBHOOKS, OLD, CURRENT),
)
def test_the_signer_during_a_rotation(
    config: Certificate, policy: Policy, old: Stored, signs: Stored
) -> None:
    assert decisions.signer(config, CURRENT, old, policy, 2000) == signs


def rotating(authorities: object) -> dict[str, Any]:
    return {"status": {"credentials": {"rotation": {"certificateAuthorities": authorities}}}}


@cases(
    "phase completes",
    ("Z-5-preparing", "Preparing", False),
    ("Z-5-without-rollout", "PreparingWithoutWorkersRollout", False),
    ("Z-5-waiting-for-rollout", "WaitingForWorkersRollout", False),
    ("Z-5-prepared", "Prepared", False),
    ("Z-5-completing", "Completing", True),
    ("Z-5-completed", "Completed", True),
)
def test_the_policy_follows_the_phase_of_the_shoot(phase: str, completes: bool) -> None:
    shoot = rotating({"phase": phase, "lastInitiationTime": "2023-11-14T22:13:20Z"})
    assert decisions.Policy.of_shoot(shoot) == Policy(rotation=1700000000, drop_old=completes)


ZERO = "0001-01-01T00:00:00"


@cases(
    "shoot",
    ("Z-5-no-status", {}),
    ("Z-5-null", {"status": None}),
    ("Z-5-text", {"status": {"credentials": "x"}}),
    ("Z-5-a-list", rotating([1])),
    ("Z-5-no-time", rotating({"lastInitiationTime": "soon"})),
    ("Z-5-wrong-types", rotating({"lastInitiationTime": 7, "phase": [1]})),
    ("Z-5-day", rotating({"lastInitiationTime": "2026-02-30T99:00:00Z", "phase": {"a": 1}})),
    ("Z-5-zero-time", rotating({"lastInitiationTime": f"{ZERO}Z", "phase": "Preparing"})),
    ("Z-5-zero-time-of-nowhere", rotating({"lastInitiationTime": ZERO, "phase": ""})),
)
def test_a_shoot_without_a_rotation(shoot: Mapping[str, Any]) -> None:
    assert decisions.Policy.of_shoot(shoot) == Policy()


@rule("Z-1")
def test_names_depend_on_config_signer_and_rotation() -> None:
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
    # A certificate with the other sort of key is as good until it is renewed.
    assert configs.checksum(replace(SERVER, elliptic=True)) == configs.checksum(SERVER)
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
