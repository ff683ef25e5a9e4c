"""The settings and texts of each type of Extension."""

from __future__ import annotations

from tests.support.cases import cases
from tests.support.rules import rule
from workers.core.lifecycle.actuators import Need
from workers.core.lifecycle.statuses import OperationTexts
from workers.kinds.extension.extensionpool import DESCRIPTIONS, KINDS


@cases(
    "type_, classes, shoot",
    {
        "P-1+XT-2-seed": ("local-ext-seed", {"garden", "seed", "shoot"}, Need.OPTIONAL),
        "P-1+XT-2-shoot": ("local-ext-shoot", {"garden", "shoot"}, Need.OPTIONAL),
        "P-1+XT-2-after-worker": ("local-ext-shoot-after-worker", {"shoot"}, Need.REQUIRED),
    },
)
def test_kinds(type_: str, classes: set[str], shoot: Need) -> None:
    kind = KINDS[type_]
    assert (kind.pool, kind.types) == (type_, frozenset({type_}))
    assert kind.finalizer == f"extensions.gardener.cloud/{type_}"
    assert (kind.classes, kind.shoot) == (frozenset(classes), shoot)
    assert (kind.deadline, kind.resync) == (180, 3600)


@rule("U-1", "F-6")
def test_the_texts_of_extensions() -> None:
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
