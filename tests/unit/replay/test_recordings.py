"""The file that a recording is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bus import recordings
from bus.messages import Call
from tests.support.cases import cases
from tests.support.samples import recording, run, seen
from windowbox.errors import Malformed, Refused

WHOLE = recording(
    [run((3,), (Call(door="dns", request={"do": "replace"}, effect=True),))],
    seen(3, body={"metadata": {"name": "wörld"}}),
    seen(4, "DELETED"),
)


def test_a_recording_is_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "day.wbx"
    recordings.write(file, WHOLE)
    assert recordings.read(file) == WHOLE


def test_an_unwritable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere/day\.wbx cannot be written: No such file or directory; "):
        recordings.write(tmp_path / "nowhere" / "day.wbx", WHOLE)


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.wbx", tmp_path / "second.wbx"
    recordings.write(first, WHOLE)
    recordings.write(second, recordings.read(first))
    assert first.read_bytes() == second.read_bytes()


@cases(
    "content complaint",
    ("another-kind-of-file", b"PK\x03\x04", "cannot be read as a recording"),
    ("cut-off", gzip.compress(b"{}")[:-4], "cannot be read as a recording"),
    ("empty", gzip.compress(b""), "is empty"),
    ("no-header", gzip.compress(b'{"name": "x"}'), "has no header"),
    (
        "of-the-future",
        gzip.compress(
            b'{"recording": 2, "version": "9.0", "since": "2026-09-01T00:00:00Z",'
            b' "until": "2026-09-01T00:00:00Z", "settings": {}}'
        ),
        "has format 2, this windowbox reads 1: replay it with windowbox 9.0",
    ),
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    file = tmp_path / "day.wbx"
    file.write_bytes(content)
    with pytest.raises(Malformed, match=complaint):
        recordings.read(file)


def test_a_bad_line_is_reported_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "day.wbx"
    recordings.write(file, WHOLE)
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) + b'{"weather": "fine"}\n'))
    with pytest.raises(Malformed, match=r"day.wbx, line 5: neither an object, a run nor a review"):
        recordings.read(file)
