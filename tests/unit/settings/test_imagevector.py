"""The overwrite of the image vector, as a file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.secretsmanager import generation
from windowbox.secretsmanager.configs import Authority
from windowbox.settings import imagevector, settings


@rule("IV-1")
@cases("by_setting", ("environment", False), ("setting", True))
def test_the_named_file_is_read_and_the_setting_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_setting: bool
) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("images: [{name: local-path-helper, ref: x, sourceRepository: y, labels: []}]")
    monkeypatch.setenv("IMAGEVECTOR_OVERWRITE", "/nowhere" if by_setting else str(file))
    found = settings.load(None, {"images": {"overwrite": str(file)}} if by_setting else None)
    assert found.kinds.images.image("local-path-helper") == "x"
    assert found.deciding.kinds.images == found.kinds.images


@rule("IV-1")
def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"nowhere cannot be read: .*; correct images.overwrite or"):
        imagevector.load(tmp_path / "nowhere")


@rule("IV-2")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("images: [", "is not YAML"),
        ("[]", "must hold a mapping with a list `images`"),
        ("images: x", "must hold a mapping with a list `images`"),
        ("images: [x]", r"images\[0\]: 'x' is no mapping"),
        ("images: [{ref: x}]", r"images\[0\]\.name: Field required"),
        ("images: [{name: a}]", r"images\[0\] \(a\): neither ref nor repository is set; set one of them"),
        ("images: [{name: a, repository: r, tag: 1.3}]", r"tag: 1.3: .* valid string; put it in quotes"),
        ("images: [{name: a, ref: x, tag: '1'}]", r"tag: '1' stands beside ref 'x'; remove one of them"),
        ("images: [{name: a, ref: x, repository: r}]", r"repository: 'r' stands beside ref 'x'"),
        ("images: [{name: a, ref: x, targetVersion: new}]", r"targetVersion: 'new' is no version constraint"),
        ("images: [{name: a, ref: x, runtimeVersion: '>'}]", r"runtimeVersion: '>' is no version constraint"),
        ("images: [{name: a, ref: x, architectures: amd64}]", r"architectures: 'amd64': .*; write a list"),
        ("caBundle: {inline: x}", r"caBundle.inline: .*; put certificates in PEM there"),
        ("caBundle: {}", r"caBundle.inline: None is no text; put certificates in PEM there"),
    ],
)
def test_an_invalid_file_is_named_with_field_and_remedy(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(content)
    with pytest.raises(Malformed, match=f"^image vector overwrite {file}.*{words}"):
        imagevector.load(file)


@rule("IV-2")
def test_an_expired_authority_is_an_error(tmp_path: Path) -> None:
    file, now = tmp_path / "images.yaml", datetime.now(UTC)

    def written(begun: datetime) -> Path:
        inline = generation.authority(Authority("ca", validity=timedelta(days=30)), "ca", begun)["ca.crt"]
        file.write_text(yaml.safe_dump({"caBundle": {"inline": inline.decode()}}))
        return file

    assert imagevector.load(written(now)).images
    with pytest.raises(Malformed, match=r"caBundle.inline: CN=ca expired at .*; replace it"):
        imagevector.load(written(now - timedelta(days=31)))
