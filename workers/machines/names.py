"""Names of MachineSets, Machines and their Pods: deterministic, so that a repeated creation conflicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGITS = str.maketrans("0123456789", "456789bcdf")
"""Kubernetes' safe encoding of decimal numbers."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of Kubernetes' generated names: no vowels, no digits that look like letters."""
_LENGTH = 5
_POD_PREFIX = "machine-"
_LONGEST = 63
"""Limit of a Service's name, a label's value and a host name."""
_DIGEST = 8
_LONGEST_MACHINE = 55
"""A Machine's Service is called `machine-<name>`, and Service names have at most 63 characters."""
_TOKEN_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_TOKEN_ID = 6


def template_hash(template: Mapping[str, Any], collisions: int = 0) -> str:
    """The hash of a template, in decimal, for names only: MachineSets are found by comparing templates."""
    content = json.dumps([template, collisions], sort_keys=True, separators=(",", ":"))
    value = 0x811C9DC5
    for byte in content.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return str(value)


def set_name(deployment: str, digits: str) -> str:
    """The name of the MachineSet for a template with this hash."""
    return f"{deployment}-{digits.translate(_DIGITS)[:_LENGTH]}"


def machine_name(machine_set: str, uid: str, number: int) -> str:
    """The name of the `number`-th machine of the MachineSet with this uid."""
    value = int.from_bytes(hashlib.sha256(f"{uid}/{number}".encode()).digest()[:8], "big")
    end = ""
    for _ in range(_LENGTH):
        value, at = divmod(value, len(_ALPHABET))
        end += _ALPHABET[at]
    return f"{machine_set[: _LONGEST_MACHINE - _LENGTH - 1].rstrip('-.')}-{end}"


def short(machine: str) -> str:
    """The Machine's name where it fits behind the prefix; otherwise truncated, with a digest of the whole."""
    room = _LONGEST - len(_POD_PREFIX)
    if len(machine) <= room and "." not in machine:
        return machine
    digest = hashlib.sha256(machine.encode()).hexdigest()[:_DIGEST]
    return f"{machine.replace('.', '-')[: room - _DIGEST - 1].rstrip('-')}-{digest}"


def pod(machine: str) -> str:
    """The name of the Machine's Pod, Service and node."""
    return _POD_PREFIX + short(machine)


def is_pod(name: str) -> bool:
    """Whether a Pod or node of this name may be a Machine's."""
    return name.startswith(_POD_PREFIX)


def user_data(machine: str) -> str:
    """The name of the Secret with the Machine's user data."""
    return f"{pod(machine)}-userdata"


def token_id(uid: str, attempt: int = 0) -> str:
    """The id of a Machine's bootstrap token: one of two billion, so that no two Machines share a token."""
    number = int.from_bytes(hashlib.sha256(f"{uid}/{attempt}".encode()).digest())
    digits = []
    for _ in range(_TOKEN_ID):
        number, digit = divmod(number, len(_TOKEN_ALPHABET))
        digits.append(_TOKEN_ALPHABET[digit])
    return "".join(digits)


def token(token_id: str) -> str:
    """The name of the Secret with a bootstrap token."""
    return f"bootstrap-token-{token_id}"
