"""The script that a new machine runs first: it writes files and units, and starts the units.

Byte for byte as machines know it from Gardener's own provider, wherever the shell leaves that as it is; see
docs/decisions/0015-data-that-a-shell-would-change-is-quoted.md for where it would not.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

UNITS = "/etc/systemd/system"
"""Where systemd looks for the units of an administrator."""

_MARKER = "/var/lib/osc/provision-osc-applied"
"""The script runs at every boot; where this file is, it has done its work."""
_ONCE = f"""\
if [ -f "{_MARKER}" ]; then
  echo "Provision OSC already applied, exiting..."
  exit 0
fi

""".encode()
_DONE = f"""
mkdir -p /var/lib/osc
touch {_MARKER}
""".encode()


@dataclass(frozen=True)
class File:
    """A file that the script writes."""

    path: str
    data: bytes
    permissions: int | None = None
    raw: bool = False
    """The script holds the data unencoded: other programs replace placeholders in it later."""


@dataclass(frozen=True)
class Unit:
    """A unit of systemd: its own file, if any, and its drop-ins."""

    name: str
    content: bytes | None = None
    drop_ins: tuple[tuple[str, bytes], ...] = ()


def script(files: Iterable[File], units: Iterable[Unit]) -> bytes:
    """The whole script. Idempotent."""
    units = list(units)
    written = b"".join(map(_file, files)) + b"\n" + b"".join(map(_unit, units)) + b"\n"
    started = b"systemctl daemon-reload\n" + b"".join(
        f"systemctl enable '{unit.name}' && systemctl restart --no-block '{unit.name}'\n".encode()
        for unit in units
    )
    return b"#!/bin/bash\n" + _ONCE + written + started + b"\n" + _DONE


def folder(path: str) -> str:
    """The folder of an absolute path."""
    return "/" + "/".join(segments(path)[:-1])


def segments(path: str) -> list[str]:
    """The segments of a path, without empty ones and dots."""
    return [segment for segment in path.split("/") if segment not in ("", ".")]


def _file(file: File) -> bytes:
    text = b'\nmkdir -p "' + _quoted(folder(file.path)) + b'"\n'
    text += _raw(file.path, file.data) if file.raw else _encoded(file.path, file.data)
    if file.permissions is not None:
        text += f'\nchmod "{file.permissions:04o}" "'.encode() + _quoted(file.path) + b'"'
    return text


def _unit(unit: Unit) -> bytes:
    path = f"{UNITS}/{unit.name}"
    text = b"" if unit.content is None else b"\n" + _encoded(path, unit.content)
    if unit.drop_ins:
        text += b'\nmkdir -p "' + _quoted(f"{path}.d") + b'"'
    return text + b"".join(b"\n" + _encoded(f"{path}.d/{name}", data) for name, data in unit.drop_ins)


def _encoded(path: str, data: bytes) -> bytes:
    encoded = base64.b64encode(data)
    return b'\ncat << EOF | base64 -d > "' + _quoted(path) + b'"\n' + encoded + b"\nEOF"


def _raw(path: str, data: bytes) -> bytes:
    word, end = _delimiter(data)
    return b"\ncat << " + word + b' > "' + _quoted(path) + b'"\n' + data + b"\n" + end


def _delimiter(data: bytes) -> tuple[bytes, bytes]:
    """The delimiter around the data, so that the shell neither alters it nor takes a part of it for the end.

    Returns its spelling at the beginning, where quotes prevent the expansion of variables, and at the end.
    """
    lines = set(data.split(b"\n"))
    if b"EOF" not in lines and not re.search(rb"[$`\\]", data):
        return b"EOF", b"EOF"
    names = (b"EOF" if number == 0 else b"EOF_%d" % number for number in count())
    end = next(name for name in names if name not in lines)
    return b"'" + end + b"'", end


def _quoted(text: str) -> bytes:
    """The text, escaped for double quotes. A backslash without meaning there, as in units, stays as it is."""
    return re.sub(r'["$`]|\\(?=["$`\\]|\Z)', r"\\\g<0>", text).encode()
