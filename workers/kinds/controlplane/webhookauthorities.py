"""The certificates of the authorities by which the API servers of Shoots know our webhooks."""

from __future__ import annotations

from windowbox.errors import TransientError
from windowbox.rights import webhookconfigurations
from windowbox.settings.webhooksettings import WebhookSettings
from workers.core.owned.targets import TargetCluster

_KEY = "bundle.crt"
_LOOK_AGAIN = 5.0


async def read(target: TargetCluster, settings: WebhookSettings) -> bytes:
    """The bundle that `windowbox admit` keeps, which changes while its authority is rotated."""
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
