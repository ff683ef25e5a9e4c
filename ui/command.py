"""`windowbox ui` and `windowbox open`: the page that shows the cloud at work."""

from __future__ import annotations

import time
from typing import Any

import click

from commands.options import name_option
from commands.processes import SETTINGS_HELP, loaded, process_options


@click.command(epilog=SETTINGS_HELP)
@process_options
def ui(**flags: Any) -> None:
    """Serve a page that shows the cloud at work, live, for people who would rather look than read.

    Reads the bus as the user `ui`, which may write nothing. Whoever signs in needs a token of the runtime
    cluster, and the right to `get` pages.ui.windowbox.dev there.

    \b
    Example:
      windowbox ui --settings ui.yaml
    """
    from commands.roles import roleprocess
    from ui import serving

    roleprocess.main(loaded(flags), "ui", serving.serve)


@click.command("open", epilog="\b\nExamples:\n  windowbox open\n  windowbox open --name other")
@name_option
def open_page(name: str | None) -> None:
    """Print a link to the page of the sandbox. It signs in whoever opens it first, within an hour."""
    from sandbox import roles
    from sandbox import state as states
    from ui import sessions
    from windowbox.errors import Missing
    from windowbox.settings import settings

    folder = states.folder(name)
    state = states.read(folder)
    file = roles.settings_file(folder, "ui-1")
    if state is None or not state.running() or not file.exists():
        raise Missing(
            f"the sandbox {folder.name!r} serves no page: start it with {states.command('up', folder)}"
        )
    found = settings.load(file).ui
    assert found.link_key
    click.echo(
        f"http://{found.address}/enter?link={sessions.link(found.link_key.get_secret_value(), time.time())}"
    )
