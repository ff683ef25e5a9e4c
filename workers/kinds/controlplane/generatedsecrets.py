"""The generated secrets of a control plane. What they hold is never recorded."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from windowbox.errors import TransientError
from windowbox.rights import webhookconfigurations
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Config, Usage
from windowbox.settings.webhooksettings import WebhookSettings
from workers.core.owned.targets import TargetCluster
from workers.kinds.controlplane.cloudcontroller import SERVER_SECRET
from workers.kinds.controlplane.controlplanesite import Site

if TYPE_CHECKING:
    from windowbox.secretsmanager.manager import Ensured, SecretsManager


IDENTITY = "provider-local-controlplane"

_AUTHORITY = Authority("ca-provider-local-controlplane", persist=True)
_DUMMY = "extensions.gardener.cloud:provider-local:dummy"


def configs(namespace: str, *, ccm: bool) -> list[Config]:
    """The secrets that Gardener's own tests check; with `ccm`, also that of the cloud-controller-manager."""
    server = "provider-local-dummy-server"
    made: list[Config] = [
        _AUTHORITY,
        _server(server, server, namespace, publish_authority=True),
        Certificate(
            "provider-local-dummy-client",
            f"{_DUMMY}-client",
            _AUTHORITY.name,
            Usage.CLIENT,
            organizations=(_DUMMY,),
        ),
        BasicAuth("provider-local-dummy-auth", validity=timedelta(hours=1)),
    ]
    return [*made, _server(SERVER_SECRET, SERVER_SECRET.removesuffix("-server"), namespace)] if ccm else made


async def ensure(target: TargetCluster, site: Site, now: datetime, *, ccm: bool) -> Ensured:
    """Create or rotate all of them, in step with the rotation of the Shoot's authorities."""
    # Imported with the first ControlPlane: the library takes 10 MB.
    from windowbox.secretsmanager.decisions import Policy
    from windowbox.secretsmanager.manager import Ensured

    wanted = configs(site.namespace, ccm=ccm)
    policy = Policy.of_shoot(site.raw_shoot.raw)

    async def act() -> Any:
        manager = await _manager(target, site.namespace)
        return (await manager.ensure(wanted, policy, now)).model_dump()

    request = _request(site.namespace) | {"rotation": policy.rotation, "drop_old": policy.drop_old}
    answer = await target.recorder.call("secrets", request, act, effect=True)
    return Ensured.model_validate(answer)


async def clean_up(target: TargetCluster, site: Site, ensured: Ensured) -> None:
    """Delete those that are no longer needed."""
    if not ensured.unused:
        return

    async def act() -> None:
        await (await _manager(target, site.namespace)).clean_up(ensured)

    request = _request(site.namespace) | {"unused": sorted(ensured.unused)}
    await target.recorder.call("clean up secrets", request, act, effect=True)


async def remove(target: TargetCluster, namespace: str) -> None:
    """Delete all of them."""

    async def act() -> None:
        await (await _manager(target, namespace)).remove_all()

    await target.recorder.call("remove secrets", _request(namespace), act, effect=True)


def _server(name: str, service: str, namespace: str, **options: Any) -> Certificate:
    inside = f"{service}.{namespace}.svc"
    names = (service, f"{service}.{namespace}", inside, f"{inside}.cluster.local")
    return Certificate(name, service, _AUTHORITY.name, Usage.SERVER, dns_names=names, **options)


def _request(namespace: str) -> dict[str, Any]:
    return {"namespace": namespace, "identity": IDENTITY}


async def _manager(target: TargetCluster, namespace: str) -> SecretsManager:
    from windowbox.secretsmanager.manager import SecretsManager

    return SecretsManager(await target.connection.api(), namespace, IDENTITY)


_KEY = "bundle.crt"
_LOOK_AGAIN = 5.0


async def webhook_authorities(target: TargetCluster, settings: WebhookSettings) -> bytes:
    """The authorities of our webhooks, as `windowbox admit` publishes and rotates them."""
    from windowbox.secretsmanager.manager import SecretsManager  # takes 10 MB

    known, namespace = webhookconfigurations.names(settings), settings.namespace
    config = f"{known.authority}-bundle"

    async def act() -> str | None:
        manager = SecretsManager(await target.connection.api(), namespace, known.identity)
        found = await manager.read(config)
        return found[1][_KEY].decode() if found and _KEY in found[1] else None

    text = await target.recorder.call("webhook bundle", {"namespace": namespace, "name": config}, act)
    if text is None:
        raise TransientError(
            f"namespace {namespace} has no Secret {config} of the webhooks yet: run `windowbox admit`",
            retry_after=_LOOK_AGAIN,
        )
    return bytes(text.encode())
