from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.rules import rule
from windowbox.models.extensions import instant, spelled
from windowbox.models.gardener.dnsrecord import DNSRecordSpec, DNSRecordStatus
from windowbox.models.objects import Object


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        pytest.param("2026-09-01T10:15:30Z", datetime(2026, 9, 1, 10, 15, 30, tzinfo=UTC), id="seconds"),
        pytest.param(
            "2026-09-01T10:15:30.123456789Z",
            datetime(2026, 9, 1, 10, 15, 30, 123456, tzinfo=UTC),
            id="W-5-nanoseconds",
        ),
        pytest.param("2026-09-01T12:15:30+02:00", datetime(2026, 9, 1, 10, 15, 30, tzinfo=UTC), id="offset"),
        pytest.param("2026-09-01t10:15:30z", datetime(2026, 9, 1, 10, 15, 30, tzinfo=UTC), id="small"),
        pytest.param("2026-09-01", None, id="day-only"),
        pytest.param("2026-09-01T10:15:30", None, id="no-zone"),
        pytest.param("2026-02-30T10:15:30Z", None, id="no-such-day"),
        pytest.param("0001-01-01T00:00:00+23:59", None, id="before-all-time"),
        pytest.param("", None, id="empty"),
        pytest.param(None, None, id="absent"),
    ],
)
def test_instants(text: str | None, moment: datetime | None) -> None:
    assert instant(text) == moment


@given(st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1)))
def test_what_was_spelled_is_read_again_to_the_second(moment: datetime) -> None:
    assert instant(spelled(moment)) == moment.replace(microsecond=0)


@given(st.text())
def test_any_text_is_a_moment_or_none(text: str) -> None:
    assert instant(text) is None or isinstance(instant(text), datetime)


def test_a_record_is_read_with_fields_nobody_knows_yet() -> None:
    spec = DNSRecordSpec.model_validate(
        {
            "type": "local",
            "class": "seed",
            "name": "web.local.gardener.cloud",
            "recordType": "A",
            "values": ["10.0.0.1"],
            "secretRef": {"name": "dns"},
            "newerThanUs": {},
        }
    )
    assert (spec.class_, spec.record_type, spec.secret_ref.name, spec.ttl) == ("seed", "A", "dns", None)


def test_a_record_without_name_is_malformed() -> None:
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
    found = (
        obj.name,
        obj.uid,
        obj.generation,
        obj.deleting,
        obj.finalizers,
        obj.annotations,
        obj.last_operation,
    )
    assert found == ("", "", 0, False, (), {}, {})
