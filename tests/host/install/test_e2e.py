"""Cases of tests/e2e and tests/host/traffic against what helm has installed: those that stop no process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sandbox.servers import zoneserver
from tests.e2e import client, test_dnsrecord, test_flows, test_shoots, test_zones
from tests.e2e.client import Space
from tests.e2e.witness import Witness, witnessing
from tests.host.traffic import test_changes, test_policies, test_sources, test_status, test_zero_drop
from tests.host.traffic.world import World
from tests.support import release
from tests.support.release import Release
from tests.support.servers import NameServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CASES = (
    test_dnsrecord.test_a_new_record_becomes_what_the_contract_shows,
    test_flows.test_a_request_without_changes_is_answered,
    test_flows.test_a_deleted_record_goes_from_the_server_first,
    test_flows.test_a_record_held_by_others_reports_our_release,
    test_flows.test_a_recreated_object_is_a_new_one,
    test_shoots.test_a_migrated_record_outside_shoots_is_left_alone,
    test_shoots.test_a_migrated_record_is_removed_and_released,
    test_shoots.test_a_self_hosted_shoots_record_moves_with_it,
    test_zones.test_a_wildcard_answers_for_all_below,
    test_zones.test_both_families_of_a_name_coexist,
    test_zones.test_every_type_is_served,
    test_zones.test_either_of_two_equal_records_may_go,
    test_changes.test_a_port_without_node_port_is_refused_and_the_others_served,
    test_changes.test_a_service_without_selector_leads_where_its_slices_say,
    test_changes.test_an_address_waits_for_a_service_that_changed_its_type,
    test_changes.test_the_finalizer_comes_and_goes_with_the_type,
    test_changes.test_type_and_ports_can_be_changed,
    test_policies.test_without_endpoints_clients_are_closed_at_once,
    test_sources.test_a_service_has_hundreds_of_ports,
    test_sources.test_all_nodes_and_their_pods_get_connections,
    test_sources.test_tcp_and_udp_share_a_port_number,
    test_sources.test_an_idle_connection_is_closed,
    test_sources.test_affinity_can_be_switched_off_and_on,
    test_sources.test_connections_beyond_the_limit_are_closed,
    test_sources.test_the_proxy_protocol_tells_pods_their_client,
    test_status.test_a_healthy_service_has_two_events,
    test_status.test_the_status_shows_address_mode_and_ports,
    test_zero_drop.test_connections_of_a_port_that_goes_are_finished,
    test_zero_drop.test_ports_come_and_go,
)
for _case in CASES:
    globals()[_case.__name__] = _case


pods = test_changes.pods


@dataclass
class PodWorld:
    """An installation where tests expect processes."""

    release: Release
    named: NameServer

    def alive(self) -> bool:
        return self.release.restarts() == {}


@pytest.fixture(scope="module")
def world(installed: Release) -> PodWorld:
    host = release.service_address(installed.node, 53)
    named = NameServer(53, installed.node.sandbox.folder, None, zoneserver.ZONE, host=host)
    return PodWorld(installed, named)


@pytest.fixture(scope="module")
def witness(installed: Release) -> Iterator[Witness]:
    with witnessing(installed.node.kubeconfig) as made:
        yield made


@pytest.fixture
def space(installed: Release, witness: Witness) -> Space:
    """A namespace outside of any Shoot."""
    return client.space(installed.node.api, witness, zoneserver.ZONE)


@pytest.fixture
def shoot_space(installed: Release, witness: Witness) -> Space:
    """A namespace of a Shoot, whose Cluster is not there yet."""
    return client.space(installed.node.api, witness, zoneserver.ZONE, shoot=True)


@pytest.fixture(scope="module")
def traffic(installed: Release) -> Iterator[World]:
    """Echo servers on the one node, and load balancers on the same."""
    node = installed.node
    host = str(node.nodes[0].plan.v4 - 10)  # where the bridge of the nodes has it
    node.deploy_echo("echo", replicas=3, tcp=(8080, 8081), udp=(8080,), service={"type": "ClusterIP"})
    yield World(node, v6_clients="", client=host)
    node.remove_echo("echo")
