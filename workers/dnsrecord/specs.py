"""The spec of a DNSRecord, taken from the object as it came."""

from __future__ import annotations

from pydantic import ValidationError

from windowbox.errors import Malformed
from windowbox.models.dnsrecord import DNSRecordSpec
from windowbox.models.objects import Object


def parsed(object: Object) -> DNSRecordSpec:
    try:
        return DNSRecordSpec.model_validate(object.spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Malformed(f"spec.{where}: {first['msg']}; correct the field") from error
