"""The names of what is made for a Machine. They follow from the Machine, so nothing is made twice."""

from __future__ import annotations

import hashlib

from workers.machines.names import POD_PREFIX
from workers.machines.names import pod as pod
from workers.machines.names import short as short

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_TOKEN_ID = 6


def user_data(machine: str) -> str:
    """Of the Secret with the user data."""
    return f"{pod(machine)}-userdata"


def is_pod(name: str) -> bool:
    return name.startswith(POD_PREFIX)


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
