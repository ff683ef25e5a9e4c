"""Credentials for azure: a subscription, and the service principal that works in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clouds.frame.cloud import Account

_GUID = re.compile(rb"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_ALWAYS = ("subscriptionID", "tenantID")
_PRINCIPAL = ("clientID", "clientSecret")
"""Without these, the operator's principal of the tenant works (AZU-S4)."""


def reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """AZU-S1 to AZU-S3: why these are no credentials."""
    if missing := [name for name in _ALWAYS if name not in data]:
        return f"{' and '.join(missing)} missing: add what `az account show` prints"
    given = [name for name in _PRINCIPAL if name in data]
    if len(given) == 1:
        return f"{given[0]} stands alone: give clientID and clientSecret, or none of them"
    for name in (*_ALWAYS, "clientID"):
        if name in data and not _GUID.fullmatch(data[name]):
            return f"{name} has to be a GUID such as 00000000-0000-0000-0000-000000000000, and nothing else"
    client_secret = data.get("clientSecret")
    if client_secret == b"":
        return "clientSecret is empty: give one, or leave out clientID and clientSecret"
    if client_secret is not None and client_secret.strip(b"\r\n") != client_secret:
        return "clientSecret begins or ends with a line break: encode it without one, as by `echo -n`"
    for name in _ALWAYS if old is not None else ():
        if old is not None and data[name] != old.get(name):
            return f"{name} cannot change while Shoots use the Secret: create another Secret"
    return None


def account(data: Mapping[str, bytes]) -> Account:
    subscription = data["subscriptionID"].decode().lower()
    return Account(subscription, {"subscription": subscription, "tenant": data["tenantID"].decode().lower()})
