"""Reads the overwrite of the image vector. An error in it ends the process at its start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from windowbox.errors import Malformed
from windowbox.models import constraints
from windowbox.models.gardener.images import BUILT_IN, ImageSource, ImageVector

VARIABLE = "IMAGEVECTOR_OVERWRITE"
_REMEDIES = {"string_type": "; put it in quotes", "tuple_type": "; write a list"}


def load(overwrite: Path | None) -> ImageVector:
    """The built-in entries, overwritten by those of this file, or of the file that the environment names."""
    named = os.environ.get(VARIABLE, "")
    file = overwrite or (Path(named) if named else None)
    if file is None:
        return BUILT_IN
    where = f"image vector overwrite {file}"
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Malformed(f"{where} cannot be read: {error}; correct images.overwrite or {VARIABLE}") from error
    except yaml.YAMLError as error:
        raise Malformed(f"{where} is not YAML: {error}") from error
    images = (content.get("images") or []) if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(images, list):
        raise Malformed(f"{where} must hold a mapping with a list `images`")
    _check_authorities(where, content.get("caBundle"))
    return BUILT_IN.overwritten(_source(f"{where}: images[{place}]", one) for place, one in enumerate(images))


def _source(where: str, entry: Any) -> ImageSource:
    if not isinstance(entry, Mapping):
        raise Malformed(f"{where}: {entry!r:.80} is no mapping such as `{{name: …, ref: …}}`")
    given = {name: value for name, value in entry.items() if value is not None}
    try:
        source = ImageSource.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        value = "" if first["type"] == "missing" else f" {first['input']!r:.80}:"
        remedy = _REMEDIES.get(first["type"], "")
        raise Malformed(f"{where}.{field}:{value} {first['msg']}{remedy}") from error
    if not source.ref and not source.repository:
        raise Malformed(f"{where} ({source.name}): neither ref nor repository is set; set one of them")
    for field, value in (("repository", source.repository), ("tag", source.tag)):
        if source.ref and value:
            raise Malformed(
                f"{where}.{field}: {value!r:.80} stands beside ref {source.ref!r:.200}; remove one of them"
            )
    for field, constraint in (
        ("runtimeVersion", source.runtime_version),
        ("targetVersion", source.target_version),
    ):
        try:
            if constraint:
                constraints.check(constraint)
        except Malformed as error:
            raise Malformed(f"{where}.{field}: {error}; correct it there") from error
    return source


def _check_authorities(where: str, bundle: Any) -> None:
    """caBundle.inline: certificates that are still valid."""
    if bundle is None:
        return
    inline = bundle.get("inline") if isinstance(bundle, Mapping) else None
    if not isinstance(inline, str):
        raise Malformed(f"{where}: caBundle.inline: {inline!r:.80} is no text; put certificates in PEM there")
    from cryptography import x509  # 8 MB of memory, which most processes do not need

    try:
        certificates = x509.load_pem_x509_certificates(inline.encode())
    except ValueError as error:
        raise Malformed(f"{where}: caBundle.inline: {error}; put certificates in PEM there") from error
    for one in certificates:
        if one.not_valid_after_utc <= datetime.now(UTC):
            raise Malformed(
                f"{where}: caBundle.inline: {one.subject.rfc4514_string()} expired at "
                f"{one.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}; replace it"
            )
