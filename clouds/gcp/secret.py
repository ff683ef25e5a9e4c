"""Credentials for gcp: the JSON key of a service account."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from clouds.frame.cloud import Account

_KEY = "serviceaccount.json"
_PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", re.ASCII)


def reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """GCP-S1, GCP-S2: why these are no credentials."""
    given = data.get(_KEY)
    if given is None:
        return f"{_KEY} is missing: add the JSON key of a service account"
    try:
        key = json.loads(given)
    except (ValueError, RecursionError):
        return f"{_KEY} is no JSON: download the key of the service account again"
    if not isinstance(key, dict):
        return f"{_KEY} is no object: download the key of the service account again"
    project = key.get("project_id")
    if not isinstance(project, str) or not _PROJECT.fullmatch(project):
        return f"project_id in {_KEY} has to be the ID of a project: download the key again"
    if key.get("type") != "service_account":
        return f"type in {_KEY} has to be service_account: create a key for a service account"
    return None


def account(data: Mapping[str, bytes]) -> Account:
    project = json.loads(data[_KEY])["project_id"]
    return Account(project, {"project": project})
