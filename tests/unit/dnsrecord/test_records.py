"""What a DNSRecord may ask for, as a table; the ids are the rules of the DNS contract."""

from typing import Any

import pytest

from tests.support.cases import cases
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


def of(record_type: str, *values: str) -> DNSRecordSpec:
    return spec(record_type=record_type, values=values)


HUNDRED = tuple(f"10.0.0.{n}" for n in range(100))


@cases(
    "given name ttl",
    ("DN-63-ttl-is-120-when-missing", spec(), API, 120),
    ("DN-63-ttl-0", spec(ttl=0), API, 0),
    ("DN-63-largest-ttl", spec(ttl=2**31 - 1), API, 2147483647),
    ("DN-51-upper-case-and-final-dot", spec(f"API.{ZONE}."), API, 120),
    ("DN-55-wildcard", spec(f"*.x.{ZONE}"), f"*.x.{ZONE}", 120),
    ("DN-50-address-at-the-apex", spec(ZONE), ZONE, 120),
    ("DN-50-label-63", spec(f"{'a' * 63}.{ZONE}"), f"{'a' * 63}.{ZONE}", 120),
    ("DN-50-underscore-in-txt", spec(f"_acme.{ZONE}", "TXT"), f"_acme.{ZONE}", 120),
)
def test_names_and_ttls_have_one_spelling(given: DNSRecordSpec, name: str, ttl: int) -> None:
    assert records.wanted(given, ZONE) == RecordSet(records.key(given, ZONE), ttl, ("192.0.2.1",))
    assert records.key(given, ZONE).name == name


MANY = ("192.0.2.10", "192.0.2.9", "192.0.2.10", "::ffff:c000:209")


@cases(
    "given values",
    ("DN-59+N-13-mapped-in-a", of("A", "::ffff:192.0.2.1"), ("192.0.2.1",)),
    ("DN-60-doubles-collapse-and-values-are-sorted", of("A", *MANY), ("192.0.2.9", "192.0.2.10")),
    ("DN-58-one-spelling", of("AAAA", "2001:DB8:0:0::1", "2001:db8::1"), ("2001:db8::1",)),
    ("DN-54-target-with-underscore", of("CNAME", "_Other.Example.COM."), ("_other.example.com",)),
    ("DN-60-one-target-in-two-spellings", of("CNAME", "b.example.com.", "B.example.com"), ("b.example.com",)),
    ("DN-50-longest-text", of("TXT", "x" * 4096), ("x" * 4096,)),
    ("DN-60-texts-keep-their-letters", of("TXT", "grüß", "abc", "abc"), ("abc", "grüß")),
    ("DN-62-hundred-values", of("A", *HUNDRED), HUNDRED),
)
def test_values_have_one_spelling(given: DNSRecordSpec, values: tuple[str, ...]) -> None:
    assert records.wanted(given, ZONE).values == values


@cases(
    "given field value remedy",
    ("DN-53-empty-name-is-not-the-root", spec(""), "name", '""', "write a full name"),
    ("DN-53-root", spec("."), "name", '""', "write a full name"),
    ("DN-50-empty-label", spec(f"a..b.{ZONE}"), "name", "a..b", "remove the dot"),
    ("DN-50-two-final-dots", spec(f"a.{ZONE}.."), "name", ZONE, "remove the dot"),
    ("DN-50-label-64", spec(f"{'a' * 64}.{ZONE}"), "name", "64", "shorten"),
    ("DN-50-name-too-long", spec(".".join(["a" * 60] * 4) + f".{ZONE}"), "name", "264", "shorten"),
    ("DN-40+DN-50-underscore-in-a", spec(f"_x.{ZONE}"), "name", "_x", "letters, digits"),
    ("DN-50-aaaa-underscore", spec(f"_x.{ZONE}", "AAAA", ["::1"]), "name", "_x", "digits"),
    ("DN-40+DN-50-hyphen-first", spec(f"-x.{ZONE}"), "name", "-x", "hyphens inside"),
    ("DN-50-hyphen-last", spec(f"x-.{ZONE}"), "name", "x-", "hyphens inside"),
    ("DN-50-star-inside", spec(f"a.*.{ZONE}"), "name", "a.*", "wildcards like"),
    ("DN-50-star-in-a-label", spec(f"a*.{ZONE}"), "name", "a*", "wildcards like"),
    ("DN-55-two-stars", spec(f"*.*.{ZONE}"), "name", "*.*", "wildcards like"),
    ("DN-52-letters-beyond-ascii", spec(f"grüß.{ZONE}"), "name", "grüß", "xn--"),
    ("DN-53-escaped-dot", spec(f"a\\.b.{ZONE}"), "name", "a\\.b", "use letters"),
    ("DN-53-escaped-octet", spec(f"a\\046b.{ZONE}"), "name", "\\046", "use letters"),
    ("DN-53-at-sign", spec("@"), "name", "@", "use letters"),
    ("DN-53-blank", spec(f"foo .{ZONE}"), "name", "foo ", "use letters"),
    ("DN-53-newline", spec(f"foo\n.{ZONE}"), "name", "foo", "use letters"),
    ("DN-50-outside-zone", spec("x.example.com"), "name", "x.example.com", "correct"),
    ("DN-91-no-label-boundary", spec(f"foo{ZONE}"), "name", "foolocal", "correct"),
    ("DN-24-ns", spec(record_type="NS"), "recordType", '"NS"', "use A, AAAA"),
    ("DN-9+DN-24-soa", spec(ZONE, "SOA"), "recordType", '"SOA"', "use A, AAAA"),
    ("DN-103-types-as-spelt", spec(record_type="a"), "recordType", '"a"', "use A, AAAA"),
    ("DN-61-no-values", of("A"), "values", "empty", "at least one"),
    ("DN-41+DN-62-101-values", of("A", *HUNDRED, "10.0.0.100"), "values", "101", "spread"),
    ("DN-41-counted-before-they-are-parsed", of("A", "no address", *HUNDRED), "values", "101", "spread"),
    ("DN-63-negative-ttl", spec(ttl=-1), "ttl", "-1", "use 0 to"),
    ("DN-28+DN-63-ttl-too-large", spec(ttl=2**31), "ttl", "2147483648", "use 0 to"),
    ("DN-57-leading-zero", of("A", "01.2.3.4"), "values", "01.2.3.4", "four decimal"),
    ("DN-57-three-parts", of("A", "1.2.3"), "values", "1.2.3", "four decimal"),
    ("DN-57-hex", of("A", "0x1020304"), "values", "0x1020304", "four decimal"),
    ("DN-57-port", of("A", "1.2.3.4:80"), "values", "1.2.3.4:80", "four decimal"),
    ("DN-57-prefix", of("A", "1.2.3.0/24"), "values", "1.2.3.0/24", "decimal"),
    ("DN-57-blank", of("A", " 1.2.3.4"), "values", " 1.2.3.4", "four decimal"),
    ("DN-61-empty-value", of("A", ""), "values", '""', "four decimal"),
    ("DN-57+B.1-ipv6-in-a", of("A", "2001:db8::1"), "values", "2001:db8::1", "AAAA"),
    ("DN-59+B.1-ipv4", of("AAAA", "1.2.3.4"), "values", "1.2.3.4", "use recordType A"),
    ("DN-59", of("AAAA", "::ffff:1.2.3.4"), "values", "ffff", "write 1.2.3.4"),
    ("DN-58-zone-id", of("AAAA", "fe80::1%eth0"), "values", "%eth0", "write it"),
    ("DN-58-brackets", of("AAAA", "[::1]"), "values", "[::1]", "write it"),
    (
        "DN-23-two-targets",
        of("CNAME", "a.example.com", "b.example.com"),
        "values",
        "2 targets",
        "exactly one",
    ),
    ("DN-22-cname-at-the-apex", spec(ZONE, "CNAME", ["a.example.com"]), "name", ZONE, "use A or AAAA"),
    ("DN-54-itself", of("CNAME", API + "."), "values", API, "somewhere else"),
    ("DN-54-address", of("CNAME", "1.2.3.4"), "values", "1.2.3.4", "recordType A"),
    ("DN-53-blank-target", of("CNAME", "a b.com"), "values", "a b", "use letters"),
    ("DN-53-root-target", of("CNAME", "."), "values", "empty", "full name"),
    ("DN-50-target-label-64", of("CNAME", "x" * 64), "values", "64", "shorten"),
    ("DN-61-empty-text", of("TXT", ""), "values", '""', "give it content"),
    ("V18-text-too-long", of("TXT", "x" * 4097), "values", "4097", "shorten"),
    (
        "V18-texts-too-long-together",
        of("TXT", *(f"{n:04}" * 1000 for n in range(9))),
        "values",
        "36000",
        "spread",
    ),
)
def test_a_bad_spec_names_field_value_and_remedy(
    given: DNSRecordSpec, field: str, value: str, remedy: str
) -> None:
    with pytest.raises(Malformed) as raised:
        records.wanted(given, ZONE)
    text = str(raised.value)
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)
    assert text.startswith(f"spec.{field} ")
    assert value in text
    assert remedy in text
    assert len(text) < 250


def test_half_a_surrogate_pair_is_refused() -> None:
    given = spec(record_type="TXT").model_copy(update={"values": ["a\ud800"]})
    with pytest.raises(Malformed, match="proper Unicode"):
        records.wanted(given, ZONE)


@cases(
    "given",
    ("DN-6-nonsense-values", of("A", "nonsense")),
    ("DN-6-no-values-and-bad-ttl", spec(values=[], ttl=-1)),
)
def test_a_record_can_be_deleted_whatever_its_values_are(given: DNSRecordSpec) -> None:
    assert records.key(given, ZONE) == RecordKey(API, "A")


@cases(
    "name spec_zone status_zone zones zone",
    ("DN-90-only-zone", API, None, None, [ZONE], ZONE),
    ("DN-26+DN-90-longest", f"a.b.{ZONE}", None, None, [ZONE, f"b.{ZONE}"], f"b.{ZONE}"),
    ("DN-90-labels-not-length", "a.b.io", None, None, ["io", "longer-but-not-around.com"], "io"),
    ("DN-90-wildcard", f"*.b.{ZONE}", None, None, [f"b.{ZONE}"], f"b.{ZONE}"),
    ("DN-90-apex", f"b.{ZONE}", None, None, [ZONE, f"b.{ZONE}"], f"b.{ZONE}"),
    ("DN-90-spec-beats-status", f"a.b.{ZONE}", ZONE, f"b.{ZONE}", [ZONE, f"b.{ZONE}"], ZONE),
    ("DN-90-status-beats-search", f"a.b.{ZONE}", None, ZONE, [ZONE, f"b.{ZONE}"], ZONE),
    ("DN-90-status-zone-no-longer-configured", API, None, "gone.example.com", [ZONE], ZONE),
    ("DN-92-with-and-without-final-dot", API.upper(), f"{ZONE}.", None, [f"{ZONE}."], ZONE),
)
def test_a_name_finds_its_zone(
    name: str, spec_zone: str | None, status_zone: str | None, zones: list[str], zone: str
) -> None:
    assert records.zone_for(name, spec_zone, status_zone, zones) == zone


@cases(
    "name spec_zone zones text",
    ("DN-91-boundary", "fooexample.com", None, ["example.com"], "no configured zone"),
    ("DN-91-no-fallback-to-the-root", "a.example.com", None, [], "none"),
    ("DN-92-wrong-zone", API, "example.com", ["example.com", ZONE], "does not contain"),
    ("DN-92-unknown-zone", API, "gardener.cloud", [ZONE], "none of the configured"),
)
def test_a_name_without_a_zone_is_refused(
    name: str, spec_zone: str | None, zones: list[str], text: str
) -> None:
    with pytest.raises(Malformed, match=text):
        records.zone_for(name, spec_zone, None, zones)
