"""Credentials for aws."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

from clouds.frame.cloud import Account
from windowbox.errors import Malformed

_KEY_ID = re.compile(rb"\w+", re.ASCII)
_KEY = re.compile(rb"[A-Za-z0-9/+=]+")
_PREFIX, _ACCOUNT = len("AKIA"), (1 << 40) - 1
"""The ids of keys are base32 behind their prefix. One bit stands before the number of the account."""


def reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """AWS-S1 to AWS-S3: why these are no credentials."""
    key_id, key = data.get("accessKeyID"), data.get("secretAccessKey")
    if key_id is None or not 16 <= len(key_id) <= 128 or not _KEY_ID.fullmatch(key_id):
        return "accessKeyID has to have 16 to 128 letters, digits and underscores: copy it from the IAM user"
    if key is None or len(key) < 40 or not _KEY.fullmatch(key):
        return "secretAccessKey has to have at least 40 characters of base64: create a new key if it is lost"
    return None


def account(data: Mapping[str, bytes]) -> Account:
    """The account that issued the key, so that a new key of the same account finds the same cloud."""
    key_id = data["accessKeyID"].decode()
    try:
        head = base64.b32decode(key_id[_PREFIX:])[:6]
    except binascii.Error:
        return Account(key_id)  # no id of AWS: such a key has an account of its own
    return Account(str(int.from_bytes(head) >> 7 & _ACCOUNT))


def provider_secret(
    data: Mapping[str, bytes], cluster: Callable[[], Mapping[str, Any]]
) -> dict[str, bytes | None]:
    """AWS-S4: a file of shared credentials."""
    for name in ("accessKeyID", "secretAccessKey"):
        if name not in data:
            raise Malformed(f"could not mutate cloudprovider secret as {name!r} field is missing: add it")
    lines = (
        b"[default]",
        b"aws_access_key_id=" + data["accessKeyID"],
        b"aws_secret_access_key=" + data["secretAccessKey"],
    )
    return {"credentialsFile": b"\n".join(lines)}
