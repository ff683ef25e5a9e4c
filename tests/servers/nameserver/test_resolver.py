"""The host's resolver: its answer is reported, and never fails a run."""

from __future__ import annotations

import aiodns
import pytest

from sandbox import processes
from tests.servers.nameserver.conftest import ZONE, Named, rrset
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.clients.nameserver import Nameserver, ask_resolver
from windowbox.models.recordsets import RecordSet


@cases(
    "wanted",
    ("DN-112-A", rrset("x", "A", "1.1.1.1", "1.1.1.2")),
    ("DN-112-AAAA", rrset("x", "AAAA", "2001:db8::1")),
    ("DN-113-CNAME", rrset("x", "CNAME", "target.example.com")),
    ("DN-112-TXT", rrset("x", "TXT", "hello world")),
    ("DN-112-long-TXT", rrset("x", "TXT", "y" * 600, "z")),
    ("DN-62+DN-112-truncated", rrset("x", "A", *(f"10.0.{n}.1" for n in range(100)))),
)
async def test_a_wanted_answer_is_recognised(named: Named, nameserver: Nameserver, wanted: RecordSet) -> None:
    await nameserver.replace(ZONE, wanted)
    assert "as wanted" in await ask_resolver(wanted, servers=["127.0.0.1"], port=named.port)


@rule("DN-111", "DN-114")
async def test_answers_are_never_cached(named: Named, nameserver: Nameserver) -> None:
    old, new = rrset("x", "A", "1.1.1.1", ttl=3600), rrset("x", "A", "2.2.2.2", ttl=3600)
    before = await ask_resolver(old, servers=["127.0.0.1"], port=named.port)
    await nameserver.replace(ZONE, old)
    lagging = await ask_resolver(new, servers=["127.0.0.1"], port=named.port)
    await nameserver.replace(ZONE, new)
    after = await ask_resolver(new, servers=["127.0.0.1"], port=named.port)
    assert ["as wanted" in text for text in (before, lagging, after)] == [False, False, True]
    assert "still answers 1.1.1.1" in lagging


@rule("DN-114")
async def test_a_resolver_that_is_away_is_no_failure() -> None:
    finding = await ask_resolver(
        rrset("x", "A", "1.1.1.1"), servers=["127.0.0.1"], port=processes.free_port(), timeout=0.1
    )
    assert "does not answer" in finding


@rule("DN-112")
@pytest.mark.parametrize(
    "code", [value for name, value in vars(aiodns.error).items() if name.startswith("ARES_E")]
)
async def test_errors_of_aiodns_become_a_sentence(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise aiodns.error.DNSError(code, "said the library")

    monkeypatch.setattr(aiodns.DNSResolver, "query_dns", broken)
    finding = await ask_resolver(rrset("x", "A", "1.1.1.1"))
    assert finding.endswith("said the library")
