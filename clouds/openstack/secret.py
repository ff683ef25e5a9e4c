"""Credentials for openstack."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from clouds.frame.cloud import Account
from clouds.frame.decoding import decode
from clouds.openstack.api import CloudProfileConfig
from windowbox.errors import Malformed
from windowbox.models.objects import mapping

_TRIMMED = (
    "domainName",
    "tenantName",
    "username",
    *(f"applicationCredential{one}" for one in ("ID", "Name", "Secret")),
)
_TENANT = ("domainName", "tenantName")
_LONGEST_TENANT = 64
_URL = re.compile(
    r"(?!:)(?:[A-Za-z][A-Za-z0-9+.-]*:|[^:/?#]*(?:[/?#]|$))(?:[^%\x00-\x1f\x7f]|%[0-9A-Fa-f]{2})*", re.ASCII
)
"""What Go reads as a URL, absolute or relative."""


def reason(data: Mapping[str, bytes], old: Mapping[str, bytes] | None) -> str | None:
    """OST-S1 to OST-S4: why these are no credentials."""
    if found := incomplete(data):
        return found
    for name in _TRIMMED:
        if data.get(name, b"") != data.get(name, b"").strip():
            return f"{name} begins or ends with a blank: remove it"
    if len(data["tenantName"]) > _LONGEST_TENANT:
        return f"tenantName is longer than {_LONGEST_TENANT} characters: shorten it"
    if data.get("password", b"") != data.get("password", b"").strip(b"\r\n"):
        return "password begins or ends with a line break: remove it"
    if not _URL.fullmatch(data.get("authURL", b"").decode(errors="replace")):
        return "authURL is no URL: write it as https://keystone.example.com/v3"
    return None


def incomplete(data: Mapping[str, bytes]) -> str | None:
    """OST-S1 to OST-S3: what is missing, or too much, for any request to the cloud."""
    for name in ("domainName", "tenantName"):
        if not data.get(name):
            return f"{name} is missing: add it"
    application = data.get("applicationCredentialSecret")
    if data.get("password"):
        if application:
            return "password and applicationCredentialSecret exclude each other: remove one"
        return None if data.get("username") else "username is missing: add the user of the password"
    if not application:
        return "password or applicationCredentialSecret is missing: add one of them"
    by_name = data.get("applicationCredentialName") and data.get("username")
    if not data.get("applicationCredentialID") and not by_name:
        return "applicationCredentialID is missing: add it, or applicationCredentialName and username"
    return None


def account(data: Mapping[str, bytes]) -> Account:
    """A tenant of a domain. The URL of Keystone does not count: a webhook adds it (OST-S5)."""
    domain, tenant = (data[name].decode(errors="replace") for name in _TENANT)
    return Account(json.dumps([domain, tenant]), {"domain": domain, "tenant": tenant})


def provider_secret(
    data: Mapping[str, bytes], cluster: Callable[[], Mapping[str, Any]]
) -> dict[str, bytes | None]:
    """OST-S5: Keystone's URL and authority, from the CloudProfile."""
    spec = cluster().get("spec")
    shoot, profile = (
        mapping(mapping(mapping(spec).get(one)).get("spec")) for one in ("shoot", "cloudProfile")
    )
    given, region = profile.get("providerConfig"), shoot.get("region")
    if given is None:
        return {}
    config = decode(CloudProfileConfig, given, "the providerConfig of the CloudProfile")
    regional = next((one for one in config.keystone_urls if one.region == region), None)
    url = regional.url if regional else config.keystone_url
    if not url:
        raise Malformed(
            f"could not find KeyStoneUrl: the CloudProfile has no keystoneURL for region {region!r:.80}"
        )
    found: dict[str, bytes | None] = {"authURL": url.encode(), "insecure": None}
    authority = regional.ca_cert if regional and regional.ca_cert else config.keystone_ca_cert
    if authority is not None:
        found["caCert"] = authority.encode()
    if config.keystone_force_insecure:
        found["insecure"] = b"true"
    return found
