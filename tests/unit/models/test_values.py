"""Texts that objects hold: prefixes, durations and times as Go reads them, names in paths of the API."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models import addresses, durations
from windowbox.models.extensions import instant, spelled
from windowbox.models.gardener.dnsrecord import DNSRecordSpec, DNSRecordStatus
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, SECRETS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *(("10.0.0.0/16", "10.0.0.0/16"), ("10.0.7.9/16", "10.0.0.0/16"), ("10.0.0.0/0", "0.0.0.0/0")),
        *(("10.0.0.1/32", "10.0.0.1/32"), ("FD00:10::1/56", "fd00:10::/56"), ("::/0", "::/0")),
        *(("1:2:3:4:5:6:7::/128", "1:2:3:4:5:6:7:0/128"), ("::10.0.0.1/128", "::a00:1/128")),
    ],
)
def test_a_prefix_may_have_host_bits(text: str, found: str) -> None:
    assert str(addresses.prefix(text)) == found
    assert str(addresses.address("FD00:0::01")) == "fd00::1"


@pytest.mark.parametrize(
    "text",
    [
        *("10.0.0.0/016", "10.0.0.0/00", "fd00::/064", "10.0.0.0/33", "::/129", "10.0.0.0/9999"),
        *("10.0.0.0", "10.0.0.0/", "/16", "", "/", "10.0.0.0/255.255.0.0", "10.0.0.0/0.0.255.255"),
        *("10.0.0.0/+8", "10.0.0.0/-1", "10.0.0.0/ 8", " 10.0.0.0/8", "10.0.0.0/8 ", "10.0.0.0/8/8"),
        *("010.0.0.0/8", "10.0.0/16", "10.0.0.0.0/16", "0xa.0.0.0/8", "10.0.0.٠/8", "10.0.0.0/٨", "10/8"),
        *("fe80::%eth0/64", "fe80::1%1/128", "::ffff:10.0.0.0/112", "::ffff:a00:0/112", "fd00:::/64"),
        *("10.0.0.0/8\n", "1" * 9999, "a/\n", "1:2:3:4:5:6:7:8::/64", "12345::/64"),
    ],
    ids=repr,
)
def test_texts_that_go_reads_otherwise_are_no_prefix(text: str) -> None:
    assert addresses.prefix(text) is None


UNUSUAL = ("::ffff:127.0.0.1", "::ffff:7f00:1", "127.1", "2130706433")


@pytest.mark.parametrize("text", ["", "10.0.0.01", "10.0.0.1/32", "fe80::1%eth0", *UNUSUAL])
def test_texts_that_go_reads_otherwise_are_no_address(text: str) -> None:
    assert addresses.address(text) is None


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        *(("0s", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), (".5s", 0.5), ("20ms", 0.02)),
        *(("5μs", 5e-6), ("", None), ("90", None), ("-1s", None), ("1d", None), ("1h 30m", None)),
        *(("1" * 99 + "s", None), ("1s" * 50, None), ("1\u0661s", None)),
    ],
)
def test_durations_are_read_as_go_reads_them(written: str, seconds: float | None) -> None:
    assert durations.seconds(written) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(("written", "seconds"), [("1s", 1), ("1h", 3600), ("999ms", None), ("61m", None)])
def test_durations_are_within_their_bounds(written: str, seconds: float | None) -> None:
    assert durations.seconds(written, least=1, most=3600) == seconds


def test_paths_are_those_of_the_api() -> None:
    assert SECRETS.path("a", "b.c:d") == "/api/v1/namespaces/a/secrets/b.c:d"
    assert NAMESPACES.path() == "/api/v1/namespaces"


@pytest.mark.parametrize(
    "name", ["..", ".", "../../b/secrets/c", "a/b", "a%2fb", "a?watch=1", "a#b", "a b", "a\nb", "a\\b"]
)
def test_no_name_leads_elsewhere(name: str) -> None:
    for path in ((name, "b"), ("a", name)):
        with pytest.raises(Malformed, match=r"cannot be a name in secrets: correct the reference"):
            SECRETS.path(*path)


MOMENT = datetime(2026, 9, 1, 10, 15, 30, tzinfo=UTC)


@cases(
    "text moment",
    ("seconds", "2026-09-01T10:15:30Z", MOMENT),
    ("W-5-nano", "2026-09-01T10:15:30.123456789Z", MOMENT.replace(microsecond=123456)),
    ("offset", "2026-09-01T12:15:30+02:00", MOMENT),
    ("small", "2026-09-01t10:15:30z", MOMENT),
    ("day-only", "2026-09-01", None),
    ("no-zone", "2026-09-01T10:15:30", None),
    ("no-such-day", "2026-02-30T10:15:30Z", None),
    ("before-all-time", "0001-01-01T00:00:00+23:59", None),
    ("empty", "", None),
    ("absent", None, None),
)
def test_instants(text: str | None, moment: datetime | None) -> None:
    assert instant(text) == moment


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1)), st.text())
def test_a_spelled_time_is_read_again_to_the_second(moment: datetime, text: str) -> None:
    assert instant(spelled(moment)) == moment.replace(microsecond=0)
    assert instant(text) is None or isinstance(instant(text), datetime)


def test_a_record_is_read_with_fields_nobody_knows_yet() -> None:
    head = {"type": "local", "class": "seed", "name": "web.local.gardener.cloud", "recordType": "A"}
    more = {"values": ["10.0.0.1"], "secretRef": {"name": "dns"}, "newerThanUs": {}}
    spec = DNSRecordSpec.model_validate(head | more)
    assert (spec.class_, spec.record_type, spec.secret_ref.name, spec.ttl) == ("seed", "A", "dns", None)
    with pytest.raises(ValidationError, match="name"):
        DNSRecordSpec.model_validate({"type": "local", "recordType": "A", "values": [], "secretRef": {}})


@rule("S-1")
def test_a_status_is_written_as_it_was_read() -> None:
    raw = {
        "observedGeneration": 1,
        "lastError": {"description": "no", "taskID": "7"},
        "resources": [{"name": "a", "resourceRef": {"kind": "Secret", "name": "b", "apiVersion": "v1"}}],
    }
    assert DNSRecordStatus.model_validate(raw).model_dump(by_alias=True, exclude_unset=True) == raw


@given(
    st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), st.none() | st.just({}) | st.integers())
)
def test_an_object_answers_even_where_parts_are_missing(raw: dict[str, object]) -> None:
    obj = Object(raw)
    head = (obj.name, obj.uid, obj.generation, obj.deleting, obj.finalizers)
    assert (*head, obj.annotations, obj.last_operation) == ("", "", 0, False, (), {}, {})
