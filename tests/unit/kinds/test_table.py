"""The table of kinds: that each row leads to its package, and what is derived from the rows."""

from __future__ import annotations

import pytest

from commands import pages
from tests.api.lifecycle.kindtable import EDITS, TRAITS, WITHOUT
from windowbox import kinds
from windowbox.kinds import KINDS, POOLS, RESOURCES, Served
from windowbox.models import crds
from windowbox.models.refs import (
    BASTIONS,
    DNSRECORDS,
    EXPOSURES,
    EXTENSIONS,
    HEARTBEATS,
    INFRASTRUCTURES,
    INGRESSES,
    MACHINE_LEASES,
    OPERATING_SYSTEM_CONFIGS,
    SECRETS,
    SERVICES,
)
from windowbox.settings.bussettings import Deciding
from workers import replay
from workers.core import pools
from workers.kinds.controlplane import controlplanesite
from workers.kinds.extension import extensionpool

each = pytest.mark.parametrize("row", KINDS, ids=lambda row: row.pool)
extensions = pytest.mark.parametrize("pool", pools.EXTENSIONS)


def test_the_tables_of_the_page_are_up_to_date() -> None:
    text = pages.KINDS_PAGE.read_text()
    assert text == pages.kinds_page(text), "run `make generate`"


def test_each_pool_has_one_row() -> None:
    assert len(POOLS) == len(KINDS)


def test_each_pool_keeps_the_contract_or_has_a_reason() -> None:
    missing = sorted(POOLS.keys() - TRAITS.keys() - WITHOUT.keys())
    assert not missing, f"add a row for {missing} to TRAITS in tests/api/lifecycle/kindtable.py"
    assert EDITS.keys() <= {kind for pool in TRAITS for kind in POOLS[pool].owns}


@extensions
def test_the_package_of_a_row_serves_its_kind(pool: str) -> None:
    kind, row = pools.serving(replay.common_of(Deciding()), pool).kind, POOLS[pool]
    assert (kind.resource, kind.pool, kind.types) == (row.resource, pool, frozenset({row.type}))


@each
def test_an_extension_kind_has_a_definition(row: Served) -> None:
    defined = {definition.resource for definition in crds.definitions()}
    assert not row.type or row.resource in defined


def test_secrets_are_never_mirrored() -> None:
    assert SECRETS.id in RESOURCES
    assert SECRETS.id not in kinds.WATCHED


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("dns", DNSRECORDS),
        ("dnsrec", DNSRECORDS),
        ("DNSRecord", DNSRECORDS),
        ("dnsrecords", DNSRECORDS),
        ("dnsrecords.extensions.gardener.cloud", DNSRECORDS),
        ("infra", INFRASTRUCTURES),
        ("osc", OPERATING_SYSTEM_CONFIGS),
        ("bastion", BASTIONS),
        ("exposure", EXPOSURES),
        ("ext", EXTENSIONS),
        ("ing", INGRESSES),
        ("lb", SERVICES),
        ("lease", HEARTBEATS),
        ("machineleases.coordination.k8s.io", MACHINE_LEASES),
        ("svc", SERVICES),
        ("ponds", None),
    ],
)
def test_a_kind_is_found_by_its_names(name: str, resource: object) -> None:
    assert kinds.named(name) == resource


def test_no_name_means_two_kinds() -> None:
    names = [name for one in RESOURCES.values() for name in one.names]
    aliases = [alias for row in KINDS for alias in row.aliases]
    assert len(names + aliases) == len({*names, *aliases})


def test_the_names_with_rights_are_those_that_are_written() -> None:
    of_control_planes = {
        controlplanesite.CONFIGURATION,
        controlplanesite.SEED,
        controlplanesite.SHOOT,
        controlplanesite.STORAGE,
        controlplanesite.WEBHOOKS,
    }
    assert {*POOLS["controlplane"].owned_names} == of_control_planes
    for row in KINDS:
        if row.resource == EXTENSIONS:
            assert row.owned_names == (extensionpool.bundle(row.type, "any").name,)
