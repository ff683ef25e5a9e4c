"""Decides which Secrets stay, are renewed, rotated or dropped, and which authority signs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from windowbox.models.extensions import instant
from windowbox.models.objects import Json, mapping
from windowbox.secretsmanager import configs, contents, secrets
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Config, Usage
from windowbox.secretsmanager.secrets import Stored

RENEWAL_PERCENTAGE = 80
"""Of its validity, after which a secret is renewed."""
_LAST_DAYS = timedelta(days=10)
"""Before the end of its validity, in which a secret is renewed in any case, unless it never lasts longer."""
_AHEAD = 300
"""Seconds by which the clock of the process that generated a secret may have been ahead."""
_DROPS_OLD = frozenset({"Completing", "Completed"})


@dataclass(frozen=True)
class Policy:
    """How authorities are rotated."""

    rotation: int | None = None
    """When the Shoot's rotation of authorities was last initiated: unix time."""
    drop_old: bool = False
    """Whether old authorities are dropped, and their certificates signed by the new ones."""
    renew_authorities: bool = False
    """Whether authorities are renewed by time like everything else."""
    keep_old: timedelta | None = None
    """How long the old authority is trusted after its successor was issued; None: until `drop_old`."""
    current_signs: bool = False
    """Whether the current authority signs certificates of servers while there is an old one."""

    @classmethod
    def of_shoot(cls, shoot: Json) -> Policy:
        """In lock-step with the rotation of a Shoot's credentials."""
        status = mapping(shoot.get("status"))
        rotation = mapping(mapping(mapping(status.get("credentials")).get("rotation")))
        authorities = mapping(rotation.get("certificateAuthorities"))
        initiated = instant(authorities.get("lastInitiationTime"))
        seconds = int(initiated.timestamp()) if initiated else -1
        # Go's zero time means that no rotation was initiated.
        return cls(
            rotation=seconds if seconds >= 0 else None, drop_old=str(authorities.get("phase")) in _DROPS_OLD
        )


WEBHOOKS = Policy(renew_authorities=True, keep_old=timedelta(hours=24), current_signs=True)
"""How certificates of webhooks are rotated."""


def rotation_time(config: Config, found: Iterable[Stored], policy: Policy, now: int) -> str:
    """The rotation that the current Secret of `config` has to belong to; `now` begins another one.

    Secrets that are not valid yet come from a process whose clock was wrong: they count only as a reason to
    generate another one.
    """
    if isinstance(config, Authority) and policy.rotation is not None:
        return str(policy.rotation)
    ours = _of(config.name, found)
    if not renewed_by_time(config, policy):
        return last.rotation if (last := secrets.newest(ours)) else ""
    last = secrets.newest(one for one in ours if not begins_later(one.issued, now))
    if last is None:
        return str(now) if ours else ""
    due = renewal_time(last)
    return str(now) if due is not None and due <= now else last.rotation


def begins_later(issued: int | None, now: int) -> bool:
    """Whether a secret is not valid yet."""
    return issued is not None and issued > now + _AHEAD


def renewal_time(stored: Stored) -> int | None:
    """When the Secret has to be renewed: unix time. None if it lasts for ever."""
    if stored.issued is None or stored.valid_until is None:
        return None
    return renewal_of(stored.issued, stored.valid_until)


def renewal_of(issued: int, valid_until: int) -> int:
    """When a certificate with these times has to be renewed."""
    validity = valid_until - issued
    due = issued + validity * RENEWAL_PERCENTAGE // 100
    last = int(_LAST_DAYS.total_seconds())
    return min(due, valid_until - last) if validity > last else due


def renewed_by_time(config: Config, policy: Policy) -> bool:
    return policy.renew_authorities or not isinstance(config, Authority)


def chosen(config: Config, found: Iterable[Stored], rotation: str, signer: Stored | None) -> Stored | None:
    """The newest Secret that fits `config`, no matter which program generated it; None: generate one.

    Gardener's checksum of a certificate differs from ours, so its certificates are recognised by content.
    """
    wanted = configs.checksum(config)
    signing = secrets.authority_checksum(signer) if signer else ""
    return secrets.newest(
        one
        for one in _of(config.name, found)
        if one.rotation == rotation
        and one.labels.get(secrets.SIGNING, "") == signing
        and contents.complete(config, one.data)
        and (one.labels.get(secrets.CONFIG) == wanted or contents.fits(config, one.data, signer))
    )


def chosen_bundle(config: Authority, found: Iterable[Stored], checksum: str, text: bytes) -> Stored | None:
    """The Secret that already holds this bundle."""
    return secrets.newest(
        one
        for one in _of(config.bundle, found)
        if one.labels.get(secrets.CONFIG) == checksum
        or one.data.get(contents.BUNDLE, b"").split() == text.split()
    )


def old_authority(
    config: Authority, current: Stored, found: Iterable[Stored], policy: Policy, now: int
) -> Stored | None:
    """The predecessor of the current authority, for as long as it is trusted.

    One that has expired does no harm in a bundle: should `now` be wrong, it is the authority that all know.
    """
    if policy.drop_old:
        return None
    if policy.keep_old and _issued(current) + policy.keep_old.total_seconds() <= now:
        return None
    others = [one for one in _of(config.name, found) if one.name != current.name]
    complete = [one for one in others if contents.complete(config, one.data)]
    return secrets.newest(one for one in complete if _is_valid(one, now)) or secrets.newest(complete)


def dropping_time(current: Stored, old: Stored | None, policy: Policy) -> int | None:
    """When the old authority has to be dropped, if that depends on time."""
    if old is None or policy.keep_old is None:
        return None
    return _issued(current) + int(policy.keep_old.total_seconds())


def signer(config: Certificate, current: Stored, old: Stored | None, policy: Policy, now: int) -> Stored:
    """Clients trust a new authority only when all know its bundle, so that the old one signs servers."""
    if config.usage is Usage.SERVER and old and _is_valid(old, now) and not policy.current_signs:
        return old
    return current


def secret_name(config_name: str, checksum: str, signing: str, rotation: str) -> str:
    """It changes exactly if the config, its signer or the rotation does."""
    suffix = f"-{_hex(rotation)[:5]}" if rotation else ""
    return f"{config_name}-{_hex(checksum + signing)[:8]}{suffix}"


def labels(
    config: Config, identity: str, rotation: str, signer: Stored | None, issued: int
) -> dict[str, str]:
    """The labels of the Secret of `config`, without the times that its content determines."""
    found = _labels(config.name, identity, configs.checksum(config), rotation)
    if signer:
        found[secrets.SIGNING] = secrets.authority_checksum(signer)
    if isinstance(config, Authority) and config.persist:
        found[secrets.PERSIST] = "true"
    if isinstance(config, BasicAuth) and config.validity:
        found[secrets.ISSUED] = str(issued)
        found[secrets.VALID_UNTIL] = str(issued + int(config.validity.total_seconds()))
    return found


def bundle_labels(config: Authority, identity: str, checksum: str) -> dict[str, str]:
    return _labels(config.bundle, identity, checksum, "") | {secrets.BUNDLE_FOR: config.name}


def _is_valid(stored: Stored, now: int) -> bool:
    expired = stored.valid_until is not None and stored.valid_until <= now
    return not expired and not begins_later(stored.issued, now)


def _issued(stored: Stored) -> int:
    return int(stored.created) if stored.issued is None else stored.issued


def _labels(name: str, identity: str, checksum: str, rotation: str) -> dict[str, str]:
    return {
        secrets.NAME: name,
        secrets.MANAGED_BY: secrets.MANAGER,
        secrets.IDENTITY: identity,
        secrets.CONFIG: checksum,
        secrets.ROTATION: rotation,
    }


def _of(config_name: str, found: Iterable[Stored]) -> list[Stored]:
    return [one for one in found if one.config == config_name and not one.deleting]


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
