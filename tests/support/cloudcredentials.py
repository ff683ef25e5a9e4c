"""Credentials of clouds that open nothing, as their extensions accept them."""

from __future__ import annotations

import json

_KEY = {"type": "service_account", "project_id": "my-project", "private_key": "unlocks nothing"}

CREDENTIALS: dict[str, dict[str, bytes]] = {
    "alicloud": {"accessKeyID": b"LTAI5tWindowboxExample", "accessKeySecret": b"unlocks-nothing" * 3},
    "aws": {"accessKeyID": b"AKIAWINDOWBOXEXAMPLE", "secretAccessKey": b"unlocks/nothing" * 4},
    "azure": {
        "subscriptionID": b"11111111-1111-1111-1111-111111111111",
        "tenantID": b"22222222-2222-2222-2222-222222222222",
        "clientID": b"33333333-3333-3333-3333-333333333333",
        "clientSecret": b"unlocks-nothing",
    },
    "equinixmetal": {"apiToken": b"opens-nothing", "projectID": b"my-project"},
    "gcp": {"serviceaccount.json": json.dumps(_KEY).encode()},
    "openstack": {
        "authURL": b"https://keystone.example.org/v3",
        "domainName": b"my-domain",
        "tenantName": b"my-tenant",
        "username": b"my-user",
        "password": b"unlocks-nothing",
    },
}
SECRET = "unlocks"
"""Is in each of their secrets."""
