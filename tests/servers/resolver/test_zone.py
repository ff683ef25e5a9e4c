"""The zone that hosts are sent to, as the tests' name server has it."""

from __future__ import annotations

import dns.message
import dns.query
import dns.rdatatype
import dns.tsig
import dns.update

from tests.support.rules import rule
from tests.support.servers import NameServer


def answers(server: NameServer, name: str, type_: str) -> list[str]:
    question = dns.message.make_query(name, type_)
    reply = dns.query.tcp(question, "127.0.0.1", port=server.port, timeout=5)
    return sorted(str(item) for rrset in reply.answer for item in rrset)


def add(server: NameServer, name: str, address: str) -> None:
    assert server.key is not None
    update = dns.update.UpdateMessage(server.zone)
    update.use_tsig(dns.tsig.Key(server.key.name, server.key.secret, server.key.algorithm))
    update.add(name, 60, "A", address)
    dns.query.tcp(update, "127.0.0.1", port=server.port, timeout=5)


@rule("2.19-zone", "DN-106")
def test_the_zone_has_short_times(named: NameServer) -> None:
    soa = "ns.local.gardener.cloud. admin.local.gardener.cloud. 2026021101 30 30 30 1"
    assert answers(named, "local.gardener.cloud.", "SOA") == [soa]


@rule("2.19-static-records", "DN-106")
def test_the_zone_knows_its_name_server_and_the_garden(named: NameServer) -> None:
    assert answers(named, "local.gardener.cloud.", "NS") == ["ns.local.gardener.cloud."]
    assert answers(named, "ns.local.gardener.cloud.", "A") == ["127.0.0.1"]
    assert answers(named, "api.root.garden.external.local.gardener.cloud.", "A") == ["127.0.0.1"]


@rule("2.19-updates", "DN-87", "DN-72")
def test_an_added_record_survives_a_killed_server(named: NameServer) -> None:
    add(named, "web", "10.0.0.1")
    named.kill()
    named.start()
    assert answers(named, "web.local.gardener.cloud.", "A") == ["10.0.0.1"]
