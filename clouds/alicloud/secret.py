"""Credentials for alicloud."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clouds.frame.cloud import Account

_KEY_ID = re.compile(rb"[0-9a-zA-Z._=]{16,128}")


def reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """ALI-S1 to ALI-S3: why these are no credentials."""
    if not _KEY_ID.fullmatch(data.get("accessKeyID", b"")):
        return "accessKeyID has to have 16 to 128 letters, digits and `._=`: copy it again"
    key = data.get("accessKeySecret", b"")
    if len(key) < 30 or key.strip(b"\r\n") != key:
        return (
            "accessKeySecret has to have at least 30 characters, and no line break around them: copy it again"
        )
    return None


def account(data: Mapping[str, bytes]) -> Account:
    """Nobody but Alibaba Cloud knows the account of a key: here each key has its own."""
    return Account(data["accessKeyID"].decode())
