"""DNSRecords from the API to the name server and back, through real processes."""

from __future__ import annotations

from tests.e2e import zones
from tests.e2e.client import FINALIZER, OPERATION, TIMESTAMP, Space, stamp
from tests.e2e.smallworld import SmallWorld
from tests.support.rules import rule


@rule("W-1", "W-2", "W-3", "W-4", "W-5", "N-11", "D-1", "V-7", "A.2", "B.36")
def test_a_new_record_becomes_what_the_contract_shows(world: SmallWorld, space: Space) -> None:
    name, at = space.name("api"), stamp()
    record = space.record(
        name, ["172.18.255.224"], ttl=120, annotations={OPERATION: "reconcile", TIMESTAMP: at}
    )
    found = record.until_ready(at)
    assert found.annotations == {TIMESTAMP: at}
    assert found.finalizers == (FINALIZER,)
    last = found.last_operation["lastUpdateTime"]
    assert found.status == {
        "observedGeneration": 1,
        "lastOperation": {
            "type": "Create",
            "state": "Succeeded",
            "progress": 100,
            "description": "Successfully reconciled DNSRecord",
            "lastUpdateTime": last,
        },
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "Success",
                "message": "Record was created successfully in infrastructure at least once",
                "lastTransitionTime": last,
                "lastUpdateTime": last,
            }
        ],
        "zone": "local.gardener.cloud",
    }
    assert zones.answers(world.named, name) == ["172.18.255.224"]
    assert zones.ttl(world.named, name) == 120
