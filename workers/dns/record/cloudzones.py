"""Types of DNSRecords of clouds, whose hosted zones are the zones of our name servers."""

from __future__ import annotations

from collections.abc import Collection

from clouds import table
from clouds.frame.services.dns import Dns
from windowbox.errors import Malformed
from windowbox.models.clouds import BY_DNS_TYPE
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.objects import mapping
from workers.core.cloudaccounts import Account, CloudAccounts
from workers.core.lifecycle.actuators import Run
from workers.dns.record import records


def zone_for(spec: DNSRecordSpec, status_zone: str | None, zones: Collection[str]) -> str:
    """The zone of a record. Those of clouds may name it by the id of the hosted zone."""
    given = spec.zone
    if given and spec.type in BY_DNS_TYPE:
        dns = _dns(spec.type)
        given = dns.named(given, zones)
        if given is None:
            known = ", ".join(sorted(f"{dns.zone_id(zone)} ({zone})" for zone in zones))
            raise Malformed(
                f"spec.zone {spec.zone!r:.80} is no hosted zone of the account ({known or 'it has none'}): "
                "leave it empty, or correct it"
            )
    return records.zone_for(spec.name, given, reported_zone(spec.type, status_zone, zones), zones)


def reported_zone(type_: str, status_zone: str | None, zones: Collection[str]) -> str | None:
    """The zone that `status.zone` names; None if it is not known."""
    if status_zone and type_ in BY_DNS_TYPE:
        return _dns(type_).named(status_zone, zones)
    return status_zone


class HostedZones:
    """The hosted zones that the credentials of a record give access to: all that there are."""

    def __init__(self, accounts: CloudAccounts) -> None:
        self._accounts = accounts

    async def status_zone(self, run: Run, spec: DNSRecordSpec, zone: str) -> str:
        """`status.zone`. An error if the record needs credentials of a cloud, and has none."""
        account = await self.account(run)
        if account is None:
            return zone
        return spec.zone or _dns(spec.type).reported(zone, account.shown)

    async def account(self, run: Run) -> Account | None:
        """The account of the credentials, which is called; None for records of type local."""
        type_ = run.object.spec.get("type")
        if type_ not in BY_DNS_TYPE:
            return None
        secret = mapping(run.object.spec.get("secretRef"))
        if not secret.get("name"):
            raise Malformed("spec.secretRef.name is empty: name the Secret with the cloud's credentials")
        namespace = str(secret.get("namespace") or run.ref.namespace)
        cloud, keys = table.cloud(BY_DNS_TYPE[type_]), _dns(type_).keys
        account = await self._accounts.account(run, cloud, namespace, str(secret["name"]), keys)
        await self._accounts.check(run, account.name, "dns")
        return account


def _dns(type_: str) -> Dns:
    found = table.cloud(BY_DNS_TYPE[type_]).dns
    assert found  # the clouds of all types have it
    return found
