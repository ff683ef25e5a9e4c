"""Names of MachineSets and Machines. Each follows from what it is for, so that no creation happens twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGITS = str.maketrans("0123456789", "456789bcdf")
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own for generated names: no vowels, and nothing that looks like another."""
_LENGTH = 5
POD_PREFIX = "machine-"
_LONGEST = 63
"""Of a Service's name, a label's value and a host name."""
_DIGEST = 8
_LONGEST_MACHINE = 55
"""A Pod and a Service `machine-<name>` are made of it, and names of Services have at most 63 characters."""


def template_hash(template: Mapping[str, Any], collisions: int = 0) -> str:
    """Of a template, as a decimal. It only makes names: MachineSets are found by comparing templates."""
    content = json.dumps([template, collisions], sort_keys=True, separators=(",", ":"))
    value = 0x811C9DC5
    for byte in content.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return str(value)


def encoded(digits: str) -> str:
    """As Kubernetes' safe encoding spells a decimal number."""
    return digits.translate(_DIGITS)


def set_name(deployment: str, digits: str) -> str:
    """The name of the MachineSet for a template with this hash."""
    return f"{deployment}-{encoded(digits)[:_LENGTH]}"


def machine_name(machine_set: str, uid: str, number: int) -> str:
    """The name of the machine that a MachineSet with this uid makes as its `number`-th."""
    value = int.from_bytes(hashlib.sha256(f"{uid}/{number}".encode()).digest()[:8], "big")
    end = ""
    for _ in range(_LENGTH):
        value, at = divmod(value, len(_ALPHABET))
        end += _ALPHABET[at]
    return f"{machine_set[: _LONGEST_MACHINE - _LENGTH - 1].rstrip('-.')}-{end}"


def short(machine: str) -> str:
    """The Machine's name as it fits behind the prefix: as it is, or else cut, with a digest of the whole."""
    room = _LONGEST - len(POD_PREFIX)
    if len(machine) <= room and "." not in machine:
        return machine
    digest = hashlib.sha256(machine.encode()).hexdigest()[:_DIGEST]
    return f"{machine.replace('.', '-')[: room - _DIGEST - 1].rstrip('-')}-{digest}"


def pod(machine: str) -> str:
    """Of the Pod, the Service, and the node."""
    return POD_PREFIX + short(machine)
