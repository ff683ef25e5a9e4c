"""Python packages come with uv, from where pip gets them, or else with pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.programs import pythonpackages
from tests.support.cases import cases


@cases(
    "environment expected",
    ("index", {"PIP_INDEX_URL": "https://mirror.example/simple"},
     {"UV_DEFAULT_INDEX": "https://mirror.example/simple"}),
    ("own-index", {"PIP_INDEX_URL": "https://a.example", "UV_DEFAULT_INDEX": "https://b.example"},
     {"UV_DEFAULT_INDEX": "https://b.example"}),
    ("authorities", {"PIP_CERT": "/etc/ssl/mine.pem"}, {"SSL_CERT_FILE": "/etc/ssl/mine.pem"}),
)  # fmt: skip
def test_uv_asks_what_pip_asks(environment: dict[str, str], expected: dict[str, str]) -> None:
    found = pythonpackages.like_pip(environment)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.long  # pip takes two seconds to start; the other tests here show what both are asked
def test_without_uv_pip_is_tried_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "UV_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pythonpackages, "WANTED", ("nobody-publishes-this",))
    assert pythonpackages.main() == 1
    complaint = capsys.readouterr().err
    assert "No matching distribution found for nobody-publishes-this" in complaint
    assert "pip could not install what windowbox needs: see above." in complaint
