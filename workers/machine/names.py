"""The names of what is made for a Machine. They follow from the Machine, so nothing is made twice."""

from __future__ import annotations

import hashlib

_PREFIX = "machine-"
_LONGEST = 63
"""Of a Service's name, a label's value and a host name."""
_DIGEST = 8
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_TOKEN_ID = 6


def short(machine: str) -> str:
    """The Machine's name as it fits behind the prefix: as it is, or else cut, with a digest of the whole."""
    room = _LONGEST - len(_PREFIX)
    if len(machine) <= room and "." not in machine:
        return machine
    digest = hashlib.sha256(machine.encode()).hexdigest()[:_DIGEST]
    return f"{machine.replace('.', '-')[: room - _DIGEST - 1].rstrip('-')}-{digest}"


def pod(machine: str) -> str:
    """Of the Pod, the Service, and the node."""
    return _PREFIX + short(machine)


def user_data(machine: str) -> str:
    """Of the Secret with the user data."""
    return f"{pod(machine)}-userdata"


def is_pod(name: str) -> bool:
    return name.startswith(_PREFIX)


def token_id(uid: str, attempt: int = 0) -> str:
    """The id of a Machine's bootstrap token: one in two billion, so that no two Machines share a token."""
    number = int.from_bytes(hashlib.sha256(f"{uid}/{attempt}".encode()).digest())
    digits = []
    for _ in range(_TOKEN_ID):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def token(token_id: str) -> str:
    """Of the Secret with a bootstrap token."""
    return f"bootstrap-token-{token_id}"
