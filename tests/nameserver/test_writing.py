"""Changes reach the zone, and only count when they are seen there."""

from __future__ import annotations

from tests.nameserver.conftest import ZONE, Named
from tests.rules import rule
from windowbox.clients.nameserver import Nameserver
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType


def rrset(name: str, record_type: RecordType, *values: str, ttl: int = 60) -> RecordSet:
    return RecordSet(RecordKey(f"{name}.{ZONE}", record_type), ttl, values)


@rule("V1", "DN-2")
async def test_a_replaced_record_is_answered_with_all_its_values(
    named: Named, nameserver: Nameserver
) -> None:
    before = named.serial()
    await nameserver.replace(ZONE, rrset("x", "A", "1.1.1.1", "1.1.1.2"))

    assert named.serial() == before + 1
    assert [line.split()[1::3] for line in named.dig("x", short=False)] == [
        ["60", "1.1.1.1"],
        ["60", "1.1.1.2"],
    ]
