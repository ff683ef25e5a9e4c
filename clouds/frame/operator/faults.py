"""Faults of a cloud: calls that people let fail, with the texts and error codes that the cloud has for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from windowbox.errors import TransientError
from windowbox.models.extensions import instant
from windowbox.models.objects import mapping, mappings

UNAUTHENTICATED = ("ERR_INFRA_UNAUTHENTICATED",)
UNAUTHORIZED = ("ERR_INFRA_UNAUTHORIZED",)
QUOTA = ("ERR_INFRA_QUOTA_EXCEEDED",)
RATE = ("ERR_INFRA_RATE_LIMITS_EXCEEDED",)
DEPENDENCIES = ("ERR_INFRA_DEPENDENCIES",)
DEPLETED = ("ERR_INFRA_RESOURCES_DEPLETED",)
CONFIGURATION = ("ERR_CONFIGURATION_PROBLEM",)

PARTS = ("infrastructure", "machines", "dns", "backup", "bastion", "balancers")
"""What calls a cloud."""
PLAYED = "played by `windowbox cloud fail`"
"""In the texts of all faults, so that nobody takes them for others."""
MOST = 50
"""Faults of one account."""
_THROTTLED = 30.0
"""Seconds until the next attempt after throttling, instead of the backoff."""


class Fault(NamedTuple):
    """The answer of a cloud."""

    text: str
    codes: tuple[str, ...] = ()
    """Gardener's codes that the cloud's extension finds in the text."""

    def error(self) -> TransientError:
        """The error. It is transient: a fault ends by itself, or a person ends it."""
        after = _THROTTLED if self.codes == RATE else None
        return TransientError(f"{self.text} ({PLAYED})", retry_after=after, codes=self.codes)


Faults = Mapping[str, Fault]
"""The faults of a cloud by name."""


def codes_in(faults: Faults, text: str) -> tuple[str, ...]:
    """The codes of the faults that a text quotes."""
    return tuple(sorted({code for one in faults.values() if one.text in text for code in one.codes}))


@dataclass(frozen=True)
class SetFault:
    """A fault that somebody has set for an account."""

    fault: str
    on: str = ""
    """The part whose calls fail; empty: all."""
    shoot: str = ""
    """The technical id of the Shoot whose calls fail; empty: those of all."""
    times: int = 0
    """How many further calls fail; 0: all until the fault ends."""
    until: str = ""
    """When it ends, as in RFC 3339; empty: when somebody ends it."""

    def ended(self, now: datetime) -> bool:
        end = instant(self.until)
        return end is not None and end <= now

    def hits(self, part: str, shoot: str) -> bool:
        return self.on in ("", part) and self.shoot in ("", shoot)


def decoded(value: bytes | None) -> list[SetFault]:
    """The faults of an entry of the bus, as far as they have the form."""
    given = mapping(json.loads(value) if value else None)
    return [
        SetFault(
            fault=str(one.get("fault")),
            on=str(one.get("on") or ""),
            shoot=str(one.get("shoot") or ""),
            times=int(one.get("times") or 0),
            until=str(one.get("until") or ""),
        )
        for one in mappings(given.get("faults"))
    ]


def encoded(faults: list[SetFault]) -> bytes | None:
    """An entry of the bus; None if it needs none."""
    shown = [{name: value for name, value in asdict(one).items() if value} for one in faults]
    return json.dumps({"faults": shown}).encode() if shown else None


def active(faults: list[SetFault], now: datetime | None = None) -> list[SetFault]:
    """Those that have not ended."""
    now = now or datetime.now(UTC)
    return [one for one in faults if not one.ended(now)]


def called(faults: list[SetFault], part: str, shoot: str) -> tuple[str, list[SetFault]]:
    """The fault that a call meets, or an empty name; and the faults after this call."""
    hit = next((i for i, one in enumerate(faults) if one.hits(part, shoot)), None)
    if hit is None:
        return "", faults
    one = faults[hit]
    counted = [replace(one, times=one.times - 1)] if one.times > 1 else []
    return one.fault, faults if not one.times else [*faults[:hit], *counted, *faults[hit + 1 :]]
