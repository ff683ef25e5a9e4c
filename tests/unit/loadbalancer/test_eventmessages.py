"""The Events of a load balancer, word by word."""

from __future__ import annotations

import pytest

from bus.messages import EventIntent
from tests.support.rules import rule
from windowbox.errors import Refused
from workers.core.reconcile import BACKOFF
from workers.loadbalancer.service import eventmessages
from workers.loadbalancer.spec.options import Refusal

ERROR = "Error syncing load balancer: "
CAUSES: dict[eventmessages.Doing, str] = {
    "ensure": "failed to ensure load balancer",
    "delete": "failed to delete load balancer",
}


@pytest.mark.parametrize(
    ("event", "kind", "reason", "note"),
    [
        pytest.param(
            eventmessages.ensuring(),
            "Normal",
            "EnsuringLoadBalancer",
            "Ensuring load balancer",
            id="LB-3-ensuring",
        ),
        pytest.param(
            eventmessages.ensured(),
            "Normal",
            "EnsuredLoadBalancer",
            "Ensured load balancer",
            id="LB-3-ensured",
        ),
        pytest.param(
            eventmessages.updated(),
            "Normal",
            "UpdatedLoadBalancer",
            "Updated load balancer with new hosts",
            id="LB-3-updated",
        ),
        pytest.param(
            eventmessages.unavailable(),
            "Warning",
            "UnAvailableLoadBalancer",
            "There are no available nodes for LoadBalancer",
            id="LB-3-unavailable",
        ),
        pytest.param(
            eventmessages.unavailable("the cluster has no nodes"),
            "Warning",
            "UnAvailableLoadBalancer",
            "There are no available nodes for LoadBalancer: the cluster has no nodes",
            id="LB-3-unavailable-and-why",
        ),
        pytest.param(
            eventmessages.deleting(),
            "Normal",
            "DeletingLoadBalancer",
            "Deleting load balancer",
            id="LB-3-deleting",
        ),
        pytest.param(
            eventmessages.deleted(),
            "Normal",
            "DeletedLoadBalancer",
            "Deleted load balancer",
            id="LB-3-deleted",
        ),
        *(
            pytest.param(
                eventmessages.sync_failed(doing, "why"),
                "Warning",
                "SyncLoadBalancerFailed",
                f"{ERROR}{cause}: why",
                id=f"LB-3-syncfailed-{doing}",
            )
            for doing, cause in CAUSES.items()
        ),
        pytest.param(
            eventmessages.refused([Refusal("SCTPNotSupported", "port 9/SCTP is not served", (9, "SCTP"))])[0],
            "Warning",
            "SCTPNotSupported",
            "port 9/SCTP is not served",
            id="LB-7-sctp",
        ),
        pytest.param(
            eventmessages.update_failed(["b", "a"], "away"),
            "Warning",
            "UpdateLoadBalancerFailed",
            "Error updating load balancer with new hosts [a b] [node names limited, total number of nodes: "
            "2], error: away",
            id="LB-3-updatefailed-few",
        ),
    ],
)
def test_an_event_says(event: EventIntent, kind: str, reason: str, note: str) -> None:
    assert (event.type, event.reason, event.note) == (kind, reason, note)


@rule("LB-3-updatefailed")
def test_of_many_nodes_twenty_are_named() -> None:
    note = eventmessages.update_failed([f"n{number:02}" for number in range(23)], "away").note
    assert " n19 <3 more>] [node names limited, total number of nodes: 23]" in note
    assert "n20" not in note


def test_many_refusals_are_told_in_one_event_for_each_reason() -> None:
    many = [Refusal("SCTPNotSupported", f"port {n}/SCTP is not served", (n, "SCTP")) for n in range(1, 251)]
    few = [Refusal("InvalidPort", f"spec.ports[{n}].port is 0") for n in range(3)]
    told = eventmessages.refused([*many, *few])
    assert [event.reason for event in told] == ["SCTPNotSupported", *["InvalidPort"] * 3]
    assert told[0].note == (
        "port 1/SCTP is not served. So it is with 249 more (2/SCTP, 3/SCTP, 4/SCTP and 246 more)"
    )


def test_a_note_is_never_longer_than_the_api_takes() -> None:
    note = eventmessages.sync_failed("ensure", "x" * 5000).note
    assert (len(note), note[-1]) == (1024, "…")


@rule("LB-16-backoff")
@rule("LB-6-retry")
def test_failures_are_tried_again_ever_more_seldom() -> None:
    delays = [BACKOFF.delay(Refused("forbidden"), failures) for failures in range(1, 9)]
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300]
