"""Gardener's etcd: real etcd-druid and etcd-backup-restore, and our stand-in for etcd-wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.options import Options
from tests.host.gardener import etcdworld
from tests.host.gardener.etcdworld import Etcd
from tests.support import worldwithnodes
from tools.gardener import base, programs
from windowbox.errors import Missing

pytestmark = [
    pytest.mark.long,  # nothing of windowbox takes part; the programs need half an hour to be built
    pytest.mark.timeout(1500),
]

_ALONE = {"watchers": 0, "workers": 0, "patchers": 0}


@pytest.fixture(scope="module")
def druid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[base.Base]:
    """A sandbox with one node, in which etcd-druid runs."""
    try:
        for name in ("etcd-druid", "etcdbrctl", "etcd-wrapper", "coredns", "helm"):
            programs.path(name)
    except Missing as error:
        pytest.skip(str(error))
    worldwithnodes.need()
    folder = tmp_path_factory.mktemp("gardener") / "sandbox"
    options = Options.model_validate({**base.options(nodes=1, played=0), **_ALONE})
    with worldwithnodes.opened(folder, options):
        prepared = base.prepare(folder)
        etcdworld.deploy_druid(prepared.kubeconfig)
        yield prepared


def test_an_etcd_survives_what_happens_to_control_planes(druid: base.Base, tmp_path: Path) -> None:
    first = Etcd(druid, "shoot--one", "bucket-one", tmp_path / "one")
    first.prepare()
    first.reconcile(replicas=1)
    first.put("key", "one")
    first.snapshot("delta")
    first.wait_for_backup()

    first.kill()
    assert first.value("key") == "one", "after the end of its Pod"

    first.snapshot()
    first.put("key", "lost")
    first.lose_data()
    first.kill()
    assert first.value("key") == "one", "restored from the backup"

    first.put("key", "two")
    first.reconcile(replicas=0)
    first.reconcile(replicas=1)
    assert first.value("key") == "two", "after hibernation"

    first.put("key", "three")
    first.snapshot(final=True)
    other = Etcd(druid, "shoot--two", "bucket-two", tmp_path / "two")
    other.prepare()
    other.copy_backups(first)
    other.reconcile(replicas=1)
    assert other.value("key") == "three", "after the migration of its control plane"


def test_an_etcd_grows_to_three_members(druid: base.Base, tmp_path: Path) -> None:
    etcd = Etcd(druid, "shoot--three", "bucket-three", tmp_path)
    etcd.prepare()
    etcd.reconcile(replicas=1)
    etcd.put("key", "one")

    etcd.reconcile(replicas=3)
    etcd.kill()

    assert etcd.value("key") == "one"
