"""Accounts of clouds: what of credentials tells them apart, and what of them is shown."""

from __future__ import annotations

import pytest

from clouds import table
from tests.support.cases import cases
from tests.support.cloudcredentials import CREDENTIALS

SHOWN = {
    "alicloud": {},
    "aws": {},
    "azure": {
        "subscription": "11111111-1111-1111-1111-111111111111",
        "tenant": "22222222-2222-2222-2222-222222222222",
    },
    "equinixmetal": {"project": "my-project"},
    "gcp": {"project": "my-project"},
    "openstack": {"domain": "my-domain", "tenant": "my-tenant"},
}


@pytest.mark.parametrize("cloud", sorted(CREDENTIALS))
def test_an_account_shows_nothing_secret(cloud: str) -> None:
    data, made = CREDENTIALS[cloud], table.cloud(cloud)
    assert made.secret(data, None) is None
    assert made.account(data).shown == SHOWN[cloud]


def test_an_account_of_openstack_is_a_tenant() -> None:
    openstack, data = table.cloud("openstack"), CREDENTIALS["openstack"]
    one = openstack.account(data)
    assert openstack.account({**data, "password": b"another"}) == one
    assert openstack.account({**data, "domainName": b"\xff"}).identity != one.identity
    blanks = [{"domainName": b"a b", "tenantName": b"c"}, {"domainName": b"a", "tenantName": b"b c"}]
    assert len({openstack.account(each).identity for each in blanks}) == 2


@cases(
    "key_id identity",
    ("account", b"ASIAY34FZKBOKMUTVV7A", "609629065308"),
    ("another-account", b"ASIAQNZGKIQY56JQ7WML", "29608264753"),
    ("no-id-of-aws", b"windowbox_example", "windowbox_example"),
)
def test_an_account_of_aws_is_the_one_that_issued_the_key(key_id: bytes, identity: str) -> None:
    """A key that was rotated belongs to the same account. Ids as in public articles about their form."""
    aws = table.cloud("aws")
    assert aws.account({"accessKeyID": key_id}).identity == identity
