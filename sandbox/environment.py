"""Environment variables that lead kubectl, nats, dig and windowbox to a sandbox."""

from __future__ import annotations

from pathlib import Path

from sandbox import roles, stages
from sandbox.servers import busserver, zoneserver
from sandbox.state import State


def variables(folder: Path, state: State) -> dict[str, str]:
    folder = folder.absolute()
    found = {
        "WINDOWBOX_SANDBOX": state.name,
        "WINDOWBOX_SETTINGS": str(roles.settings_file(folder, "operator")),
        "KUBECONFIG": str(roles.kubeconfig(folder, "operator")),
        "NATS_URL": busserver.urls(state.options.nats_servers, state.ports),
        "NATS_USER": "operator",
        "NATS_PASSWORD": busserver.passwords(folder / "nats" / "passwords.json")["operator"],
        "NATS_MONITOR_URL": f"http://127.0.0.1:{state.ports['nats-monitor']}",
        "DNS_ZONE": zoneserver.ZONE,
        "DNS_SERVER": f"127.0.0.1:{state.ports['named']}",
    }
    for name, child in state.children.items():
        if name.rpartition("-")[0] in roles.COMMANDS:
            found[f"METRICS_{name.upper().replace('-', '_')}"] = f"http://127.0.0.1:{child.port}/metrics"
    if state.options.dns_key:
        found["DNS_KEY_FILE"] = str(stages.dns_key_file(folder))
    return found
