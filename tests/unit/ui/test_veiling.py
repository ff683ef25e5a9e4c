"""Nothing secret is shown, wherever somebody has written it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ui import veiling
from ui.veiling import VEILED

PLANTED = "s3cr3t-Pl4nted"


@pytest.mark.parametrize(
    "value",
    [
        {"data": {"key": PLANTED}},
        {"stringData": {"a": PLANTED}},
        {"spec": {"files": [{"path": "/a", "content": {"inline": {"encoding": "b64", "data": PLANTED}}}]}},
        {"spec": {"password": PLANTED, "user": {"token": PLANTED}}},
        {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": PLANTED}}},
        {"metadata": {"annotations": {"example.com/kubeconfig": PLANTED}}},
        {"spec": {"userData": PLANTED, "clientSecret": PLANTED}},
        {"note": f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}\n-----END RSA PRIVATE KEY-----"},
        {"note": f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}"},
        {"note": f"Authorization: Bearer {PLANTED}"},
        {"note": f"https://admin:{PLANTED}@example.com/"},
        {"note": f'password="{PLANTED}"'},
        {"note": f"refused: the_password: {PLANTED}"},
        {"args": [f"--token={PLANTED}"]},
    ],
    ids=lambda value: json.dumps(value)[:50],
)
def test_a_secret_is_hidden(value: dict[str, Any]) -> None:
    assert PLANTED not in json.dumps(veiling.veiled(value))


def test_references_and_other_fields_stay() -> None:
    value = {"spec": {"secretRef": {"name": "dns"}, "name": "www", "values": ["10.0.0.1"], "ttl": 120}}
    assert veiling.veiled(value) == value


def test_a_json_patch_is_hidden_by_its_path() -> None:
    found = veiling.patch(
        [{"op": "add", "path": "/data/ca.crt", "value": PLANTED}, {"op": "remove", "path": "/a"}]
    )
    assert found == [{"op": "add", "path": "/data/ca.crt", "value": VEILED}, {"op": "remove", "path": "/a"}]


def test_a_value_without_end_is_cut() -> None:
    deep: Any = PLANTED
    for _ in range(1000):
        deep = [deep]
    assert PLANTED not in json.dumps(veiling.veiled(deep))
