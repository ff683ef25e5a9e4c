"""CONTRIBUTING.md lists the places of a new kind, pool, webhook and command: a forgotten place fails here."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
import yaml

import webhooks
from commands.cli import COMMANDS
from webhooks.table import WEBHOOKS
from windowbox.kinds import KINDS, Served
from windowbox.models.webhooks import REGISTRATIONS

ROOT = Path(__file__).resolve().parents[3]
MODULES = [found.name for found in pkgutil.walk_packages(webhooks.__path__, "webhooks.")]
PLACES = [entry.place for section in COMMANDS.values() for entry in section.values()]


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row.pool)
def test_the_package_of_a_row_assembles_its_pool(row: Served) -> None:
    assert hasattr(importlib.import_module(row.module), "serving" if row.type else "assembled")


def test_each_extension_kind_has_an_example() -> None:
    shown = {
        manifest["kind"]
        for path in (ROOT / "examples").glob("*.yaml")
        for manifest in yaml.safe_load_all(path.read_text())
        if manifest
    }
    assert {row.resource.kind for row in KINDS if row.type} <= shown


def test_each_registered_webhook_is_in_the_table() -> None:
    assert REGISTRATIONS.keys() == WEBHOOKS.keys()


@pytest.mark.parametrize("name", MODULES)
def test_the_webhook_of_a_module_is_in_the_table(name: str) -> None:
    webhook = getattr(importlib.import_module(name), "WEBHOOK", None)
    assert webhook is None or webhook in WEBHOOKS.values()


@pytest.mark.parametrize("place", PLACES)
def test_the_module_of_a_command_has_it(place: str) -> None:
    module, _, name = place.partition(":")
    assert hasattr(importlib.import_module(module), name)
