"""Credentials for aws."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clouds.frame.cloud import Account

_KEY_ID = re.compile(rb"\w+", re.ASCII)
_KEY = re.compile(rb"[A-Za-z0-9/+=]+")


def reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """AWS-S1 to AWS-S3: why these are no credentials."""
    key_id, key = data.get("accessKeyID"), data.get("secretAccessKey")
    if key_id is None or not 16 <= len(key_id) <= 128 or not _KEY_ID.fullmatch(key_id):
        return "accessKeyID has to have 16 to 128 letters, digits and underscores: copy it from the IAM user"
    if key is None or len(key) < 40 or not _KEY.fullmatch(key):
        return "secretAccessKey has to have at least 40 characters of base64: create a new key if it is lost"
    return None


def account(data: Mapping[str, bytes]) -> Account:
    """Nobody but AWS knows the account of a key: here each key has its own."""
    return Account(data["accessKeyID"].decode())
