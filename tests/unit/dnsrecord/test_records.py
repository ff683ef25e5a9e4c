"""What a DNSRecord may ask for, as a table; the ids are the rules of the DNS contract."""

from typing import Any

import pytest

from windowbox.errors import Malformed
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.recordsets import RecordKey, RecordSet
from workers.dns.record import records

ZONE = "local.gardener.cloud"
API = f"api.{ZONE}"


def spec(name: str = API, record_type: str = "A", values: Any = ("192.0.2.1",), **more: Any) -> DNSRecordSpec:
    return DNSRecordSpec.model_validate(
        {"type": "local", "name": name, "recordType": record_type, "values": list(values)}
        | {"secretRef": {"name": "dns", "namespace": "garden"}}
        | more
    )


@pytest.mark.parametrize(
    ("given", "name", "ttl", "values"),
    [
        pytest.param(spec(), API, 120, ("192.0.2.1",), id="DN-63-ttl-is-120-when-missing"),
        pytest.param(spec(ttl=0), API, 0, ("192.0.2.1",), id="DN-63-ttl-0"),
        pytest.param(spec(ttl=2**31 - 1), API, 2147483647, ("192.0.2.1",), id="DN-63-largest-ttl"),
        pytest.param(spec(f"API.{ZONE}."), API, 120, ("192.0.2.1",), id="DN-51-upper-case-and-final-dot"),
        pytest.param(spec(f"*.x.{ZONE}"), f"*.x.{ZONE}", 120, ("192.0.2.1",), id="DN-55-wildcard"),
        pytest.param(spec(ZONE), ZONE, 120, ("192.0.2.1",), id="DN-50-address-at-the-apex"),
        pytest.param(
            spec(f"{'a' * 63}.{ZONE}"), f"{'a' * 63}.{ZONE}", 120, ("192.0.2.1",), id="DN-50-label-63"
        ),
        pytest.param(
            spec(f"_acme-challenge.{ZONE}", "TXT", ["hello world"]),
            f"_acme-challenge.{ZONE}",
            120,
            ("hello world",),
            id="DN-50-underscore-in-txt",
        ),
        pytest.param(
            spec(values=["::ffff:192.0.2.1"]), API, 120, ("192.0.2.1",), id="DN-59+N-13-mapped-in-a"
        ),
        pytest.param(
            spec(values=["192.0.2.10", "192.0.2.9", "192.0.2.10", "::ffff:c000:209"]),
            API,
            120,
            ("192.0.2.9", "192.0.2.10"),
            id="DN-60-doubles-collapse-and-values-are-sorted",
        ),
        pytest.param(
            spec(record_type="AAAA", values=["2001:DB8:0:0::1", "2001:db8::1"]),
            API,
            120,
            ("2001:db8::1",),
            id="DN-58-one-spelling",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["_Other.Example.COM."]),
            API,
            120,
            ("_other.example.com",),
            id="DN-54-target-anywhere-with-underscore",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["b.example.com.", "B.example.com"]),
            API,
            120,
            ("b.example.com",),
            id="DN-60-one-target-in-two-spellings",
        ),
        pytest.param(
            spec(record_type="TXT", values=["x" * 4096]), API, 120, ("x" * 4096,), id="DN-50-longest-text"
        ),
        pytest.param(
            spec(record_type="TXT", values=["grüß", "abc", "abc"]),
            API,
            120,
            ("abc", "grüß"),
            id="DN-60-texts-keep-their-letters",
        ),
        pytest.param(
            spec(values=[f"10.0.0.{n}" for n in range(100)]),
            API,
            120,
            tuple(f"10.0.0.{n}" for n in range(100)),
            id="DN-62-hundred-values",
        ),
    ],
)
def test_a_good_spec_is_brought_into_one_spelling(
    given: DNSRecordSpec, name: str, ttl: int, values: tuple[str, ...]
) -> None:
    found = records.wanted(given, ZONE)
    assert (found.key.name, found.ttl, found.values) == (name, ttl, values)


@pytest.mark.parametrize(
    ("given", "field", "value", "remedy"),
    [
        pytest.param(spec(""), "spec.name", '""', "write a full name", id="DN-53-empty-name-is-not-the-root"),
        pytest.param(spec("."), "spec.name", '""', "write a full name", id="DN-53-root"),
        pytest.param(spec(f"a..b.{ZONE}"), "spec.name", "a..b", "remove the dot", id="DN-50-empty-label"),
        pytest.param(spec(f"a.{ZONE}.."), "spec.name", ZONE, "remove the dot", id="DN-50-two-final-dots"),
        pytest.param(spec(f"{'a' * 64}.{ZONE}"), "spec.name", "64", "shorten", id="DN-50-label-64"),
        pytest.param(
            spec(".".join(["a" * 60] * 4) + f".{ZONE}"),
            "spec.name",
            "264",
            "shorten",
            id="DN-50-name-too-long",
        ),
        pytest.param(
            spec(f"_x.{ZONE}"), "spec.name", "_x", "letters, digits", id="DN-40+DN-50-underscore-in-a"
        ),
        pytest.param(
            spec(f"_x.{ZONE}", "AAAA", ["::1"]), "spec.name", "_x", "digits", id="DN-50-aaaa-underscore"
        ),
        pytest.param(spec(f"-x.{ZONE}"), "spec.name", "-x", "hyphens inside", id="DN-40+DN-50-hyphen-first"),
        pytest.param(spec(f"x-.{ZONE}"), "spec.name", "x-", "hyphens inside", id="DN-50-hyphen-last"),
        pytest.param(spec(f"a.*.{ZONE}"), "spec.name", "a.*", "wildcards like", id="DN-50-star-inside"),
        pytest.param(spec(f"a*.{ZONE}"), "spec.name", "a*", "wildcards like", id="DN-50-star-in-a-label"),
        pytest.param(spec(f"*.*.{ZONE}"), "spec.name", "*.*", "wildcards like", id="DN-55-two-stars"),
        pytest.param(spec(f"grüß.{ZONE}"), "spec.name", "grüß", "xn--", id="DN-52-letters-beyond-ascii"),
        pytest.param(spec(f"a\\.b.{ZONE}"), "spec.name", "a\\.b", "use letters", id="DN-53-escaped-dot"),
        pytest.param(spec(f"a\\046b.{ZONE}"), "spec.name", "\\046", "use letters", id="DN-53-escaped-octet"),
        pytest.param(spec("@"), "spec.name", "@", "use letters", id="DN-53-at-sign"),
        pytest.param(spec(f"foo .{ZONE}"), "spec.name", "foo ", "use letters", id="DN-53-blank"),
        pytest.param(spec(f"foo\n.{ZONE}"), "spec.name", "foo", "use letters", id="DN-53-newline"),
        pytest.param(spec("x.example.com"), "spec.name", "x.example.com", "correct", id="DN-50-outside-zone"),
        pytest.param(spec(f"foo{ZONE}"), "spec.name", "foolocal", "correct", id="DN-91-no-label-boundary"),
        pytest.param(spec(record_type="NS"), "spec.recordType", '"NS"', "use A, AAAA", id="DN-24-ns"),
        pytest.param(spec(ZONE, "SOA"), "spec.recordType", '"SOA"', "use A, AAAA", id="DN-9+DN-24-soa"),
        pytest.param(
            spec(record_type="a"), "spec.recordType", '"a"', "use A, AAAA", id="DN-103-types-as-spelt"
        ),
        pytest.param(spec(values=[]), "spec.values", "empty", "at least one", id="DN-61-no-values"),
        pytest.param(
            spec(values=[f"10.0.0.{n}" for n in range(101)]),
            "spec.values",
            "101",
            "spread",
            id="DN-41+DN-62-101-values",
        ),
        pytest.param(
            spec(values=["no address"] + [f"10.0.0.{n}" for n in range(100)]),
            "spec.values",
            "101",
            "spread",
            id="DN-41-counted-before-they-are-parsed",
        ),
        pytest.param(spec(ttl=-1), "spec.ttl", "-1", "use 0 to", id="DN-63-negative-ttl"),
        pytest.param(spec(ttl=2**31), "spec.ttl", "2147483648", "use 0 to", id="DN-28+DN-63-ttl-too-large"),
        pytest.param(
            spec(values=["01.2.3.4"]), "spec.values", "01.2.3.4", "four decimal", id="DN-57-leading-zero"
        ),
        pytest.param(spec(values=["1.2.3"]), "spec.values", "1.2.3", "four decimal", id="DN-57-three-parts"),
        pytest.param(spec(values=["0x1020304"]), "spec.values", "0x1020304", "four decimal", id="DN-57-hex"),
        pytest.param(
            spec(values=["1.2.3.4:80"]), "spec.values", "1.2.3.4:80", "four decimal", id="DN-57-port"
        ),
        pytest.param(spec(values=["1.2.3.0/24"]), "spec.values", "1.2.3.0/24", "decimal", id="DN-57-prefix"),
        pytest.param(spec(values=[" 1.2.3.4"]), "spec.values", " 1.2.3.4", "four decimal", id="DN-57-blank"),
        pytest.param(spec(values=[""]), "spec.values", '""', "four decimal", id="DN-61-empty-value"),
        pytest.param(
            spec(values=["2001:db8::1"]), "spec.values", "2001:db8::1", "AAAA", id="DN-57+B.1-ipv6-in-a"
        ),
        pytest.param(
            spec(record_type="AAAA", values=["1.2.3.4"]),
            "spec.values",
            "1.2.3.4",
            "use recordType A",
            id="DN-59+B.1-ipv4",
        ),
        pytest.param(
            spec(record_type="AAAA", values=["::ffff:1.2.3.4"]),
            "spec.values",
            "ffff",
            "write 1.2.3.4",
            id="DN-59",
        ),
        pytest.param(
            spec(record_type="AAAA", values=["fe80::1%eth0"]),
            "spec.values",
            "%eth0",
            "write it",
            id="DN-58-zone-id",
        ),
        pytest.param(
            spec(record_type="AAAA", values=["[::1]"]),
            "spec.values",
            "[::1]",
            "write it",
            id="DN-58-brackets",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["a.example.com", "b.example.com"]),
            "spec.values",
            "2 targets",
            "exactly one",
            id="DN-23-two-targets",
        ),
        pytest.param(
            spec(ZONE, "CNAME", ["a.example.com"]),
            "spec.name",
            ZONE,
            "use A or AAAA",
            id="DN-22-cname-at-the-apex",
        ),
        pytest.param(
            spec(record_type="CNAME", values=[API + "."]),
            "spec.values",
            API,
            "somewhere else",
            id="DN-54-itself",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["1.2.3.4"]),
            "spec.values",
            "1.2.3.4",
            "recordType A",
            id="DN-54-address",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["a b.com"]),
            "spec.values",
            "a b",
            "use letters",
            id="DN-53-blank-target",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["."]),
            "spec.values",
            "empty",
            "full name",
            id="DN-53-root-target",
        ),
        pytest.param(
            spec(record_type="CNAME", values=["x" * 64]),
            "spec.values",
            "64",
            "shorten",
            id="DN-50-target-label-64",
        ),
        pytest.param(
            spec(record_type="TXT", values=[""]),
            "spec.values",
            '""',
            "give it content",
            id="DN-61-empty-text",
        ),
        pytest.param(
            spec(record_type="TXT", values=["x" * 4097]),
            "spec.values",
            "4097",
            "shorten",
            id="V18-text-too-long",
        ),
        pytest.param(
            spec(record_type="TXT", values=[f"{n:04}" * 1000 for n in range(9)]),
            "spec.values",
            "36000",
            "spread",
            id="V18-texts-too-long-together",
        ),
    ],
)
def test_a_bad_spec_names_field_value_and_remedy(
    given: DNSRecordSpec, field: str, value: str, remedy: str
) -> None:
    with pytest.raises(Malformed) as raised:
        records.wanted(given, ZONE)

    text = str(raised.value)
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)
    assert text.startswith(field)
    assert value in text
    assert remedy in text
    assert len(text) < 250


def test_half_a_surrogate_pair_is_refused() -> None:
    given = spec(record_type="TXT").model_copy(update={"values": ["a\ud800"]})
    with pytest.raises(Malformed, match="proper Unicode"):
        records.wanted(given, ZONE)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(spec(values=["nonsense"]), id="DN-6-nonsense-values"),
        pytest.param(spec(values=[], ttl=-1), id="DN-6-no-values-and-bad-ttl"),
    ],
)
def test_a_record_can_be_deleted_whatever_its_values_are(given: DNSRecordSpec) -> None:
    assert records.key(given, ZONE) == RecordKey(API, "A")


@pytest.mark.parametrize(
    ("name", "spec_zone", "status_zone", "zones", "zone"),
    [
        pytest.param(API, None, None, [ZONE], ZONE, id="DN-90-only-zone"),
        pytest.param(f"a.b.{ZONE}", None, None, [ZONE, f"b.{ZONE}"], f"b.{ZONE}", id="DN-26+DN-90-longest"),
        pytest.param(
            "a.b.io", None, None, ["io", "longer-but-not-around.com"], "io", id="DN-90-labels-not-length"
        ),
        pytest.param(f"*.b.{ZONE}", None, None, [f"b.{ZONE}"], f"b.{ZONE}", id="DN-90-wildcard"),
        pytest.param(f"b.{ZONE}", None, None, [ZONE, f"b.{ZONE}"], f"b.{ZONE}", id="DN-90-apex"),
        pytest.param(
            f"a.b.{ZONE}", ZONE, f"b.{ZONE}", [ZONE, f"b.{ZONE}"], ZONE, id="DN-90-spec-beats-status"
        ),
        pytest.param(f"a.b.{ZONE}", None, ZONE, [ZONE, f"b.{ZONE}"], ZONE, id="DN-90-status-beats-search"),
        pytest.param(
            API, None, "gone.example.com", [ZONE], ZONE, id="DN-90-status-zone-no-longer-configured"
        ),
        pytest.param(
            API.upper(), f"{ZONE}.", None, [f"{ZONE}."], ZONE, id="DN-92-with-and-without-final-dot"
        ),
    ],
)
def test_a_name_finds_its_zone(
    name: str, spec_zone: str | None, status_zone: str | None, zones: list[str], zone: str
) -> None:
    assert records.zone_for(name, spec_zone, status_zone, zones) == zone


@pytest.mark.parametrize(
    ("name", "spec_zone", "zones", "text"),
    [
        pytest.param("fooexample.com", None, ["example.com"], "no configured zone", id="DN-91-boundary"),
        pytest.param("a.example.com", None, [], "none", id="DN-91-no-fallback-to-the-root"),
        pytest.param(API, "example.com", ["example.com", ZONE], "does not contain", id="DN-92-wrong-zone"),
        pytest.param(API, "gardener.cloud", [ZONE], "none of the configured", id="DN-92-unknown-zone"),
    ],
)
def test_a_name_without_a_zone_is_told(name: str, spec_zone: str | None, zones: list[str], text: str) -> None:
    with pytest.raises(Malformed, match=text):
        records.zone_for(name, spec_zone, None, zones)


def test_a_record_set_says_what_was_asked() -> None:
    assert records.wanted(spec(), ZONE) == RecordSet(RecordKey(API, "A"), 120, ("192.0.2.1",))
