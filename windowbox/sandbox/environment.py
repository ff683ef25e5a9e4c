"""Variables by which other programs (kubectl, nats, dig, windowbox itself) find a sandbox."""

from __future__ import annotations

from pathlib import Path

from windowbox.sandbox import busserver, roles, stages, zoneserver
from windowbox.sandbox.state import State


def variables(folder: Path, state: State) -> dict[str, str]:
    folder = folder.absolute()
    found = {
        "WINDOWBOX_SANDBOX": state.name,
        "WINDOWBOX_SETTINGS": str(roles.settings_file(folder, "operator")),
        "KUBECONFIG": str(roles.kubeconfig(folder, "operator")),
        "NATS_URL": roles.bus_url(state.ports["nats-server"]),
        "NATS_USER": "operator",
        "NATS_PASSWORD": busserver.passwords(folder / "nats" / "passwords.json")["operator"],
        "WINDOWBOX_NATS_MONITOR": f"http://127.0.0.1:{state.ports['nats-monitor']}",
        "WINDOWBOX_DNS_ZONE": zoneserver.ZONE,
        "WINDOWBOX_DNS_SERVER": f"127.0.0.1:{state.ports['named']}",
    }
    if state.options.dns_key:
        found["WINDOWBOX_DNS_KEY_FILE"] = str(stages.dns_key_file(folder))
    return found
