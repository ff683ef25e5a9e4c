"""What is agreed about each type of Extension."""

from __future__ import annotations

import pytest

from tests.support.rules import rule
from workers.core.lifecycle.actuators import Need
from workers.core.lifecycle.statuses import OperationTexts
from workers.kinds.extension.extensionactuator import DESCRIPTIONS, KINDS


@pytest.mark.parametrize(
    ("type_", "classes", "shoot"),
    [
        pytest.param("local-ext-seed", {"garden", "seed", "shoot"}, Need.OPTIONAL, id="P-1+XT-2-seed"),
        pytest.param("local-ext-shoot", {"garden", "shoot"}, Need.OPTIONAL, id="P-1+XT-2-shoot"),
        pytest.param("local-ext-shoot-after-worker", {"shoot"}, Need.REQUIRED, id="P-1+XT-2-after-worker"),
    ],
)
def test_kinds(type_: str, classes: set[str], shoot: Need) -> None:
    kind = KINDS[type_]
    assert (kind.pool, kind.types) == (type_, frozenset({type_}))
    assert kind.finalizer == f"extensions.gardener.cloud/{type_}"
    assert (kind.classes, kind.shoot) == (frozenset(classes), shoot)
    assert (kind.deadline, kind.resync) == (180, 3600)


@rule("U-1", "F-6")
def test_words() -> None:
    assert DESCRIPTIONS.reconcile == OperationTexts(
        "Reconciling the Extension", "Successfully reconciled Extension", "Error reconciling Extension"
    )
    assert DESCRIPTIONS.delete == OperationTexts(
        "Deleting the Extension", "Successfully deleted the Extension", "Error deleting the Extension"
    )
    assert DESCRIPTIONS.migrate == OperationTexts(
        "Migrate Extension resource.",
        "Successfully migrated Extension resource",
        "Error migrating Extension resource",
    )
    assert DESCRIPTIONS.restore == OperationTexts(
        "Restoring Extension resource",
        "Successfully restored Extension resource",
        "Unable to restore Extension resource",
    )
