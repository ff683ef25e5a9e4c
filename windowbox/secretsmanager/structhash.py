"""The hash of a Go struct that Gardener puts into the names of generated Secrets.

It is that of `github.com/mitchellh/hashstructure/v2` with FormatV2 and IgnoreZeroValue, for structs
of strings and numbers: FNV-1 with 64 bits over the name of the struct, and name and value of each field set.
"""

from __future__ import annotations

from collections.abc import Mapping

Fields = Mapping[str, str | int]

_BASIS, _PRIME, _BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def checksum(struct: str, fields: Fields) -> int:
    """`fields` in the order of the struct; numbers are of the types int and time.Duration."""
    found = _fnv(struct.encode())
    for name, value in fields.items():
        if value:
            found = _fnv(_number(found ^ _fnv(_number(_value(name)) + _number(_value(value)))))
    return found


def _value(value: str | int) -> int:
    return _fnv(value.encode() if isinstance(value, str) else _number(value))


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _fnv(content: bytes) -> int:
    found = _BASIS
    for byte in content:
        found = (found * _PRIME & _BITS) ^ byte
    return found
