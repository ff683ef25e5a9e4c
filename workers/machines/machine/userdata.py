"""The user data of a machine, with its placeholders filled in."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from urllib.parse import quote

from windowbox.errors import Malformed

KEY = "userData"
TOKEN = b"<<BOOTSTRAP_TOKEN>>"
NAME = b"<<MACHINE_NAME>>"

_SECRET_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 16
_LARGEST = 900_000
"""Bytes. A Secret holds a mebibyte, and the names grow when they are filled in."""


def of(data: Mapping[str, bytes], where: str) -> bytes:
    """The user data in a Secret; `where` names the Secret."""
    if KEY not in data:
        raise Malformed(f"{where} has no key {KEY!r}: put the user data of the machine there")
    content = data[KEY]
    if len(content) > _LARGEST:
        raise Malformed(f"{where}: {KEY} has {len(content)} bytes: {_LARGEST} at most fit a machine")
    return content


def asks_for_token(content: bytes) -> bool:
    return TOKEN in content or _encoded(TOKEN) in content


def filled(content: bytes, machine: str, token: str | None) -> bytes:
    """The user data for one machine. Without a token, its placeholder stays."""
    content = _replaced(content, NAME, machine)
    return content if token is None else _replaced(content, TOKEN, token)


def new_token_secret() -> str:
    """The secret half of a bootstrap token."""
    return "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(_SECRET_LENGTH))


def _replaced(content: bytes, placeholder: bytes, value: str) -> bytes:
    if placeholder in content:
        return content.replace(placeholder, value.encode())
    return content.replace(_encoded(placeholder), quote(value, safe="").encode())


def _encoded(placeholder: bytes) -> bytes:
    return quote(placeholder, safe="").encode()
