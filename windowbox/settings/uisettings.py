"""Settings of `windowbox ui`."""

from __future__ import annotations

from pydantic import Field, SecretStr

from windowbox.settings.section import PrivateSection


class UiSettings(PrivateSection):
    """The page that shows the cloud at work."""

    address: str = Field("127.0.0.1:8470", description="host:port of the page. Port 0: any free port.")
    hosts: tuple[str, ...] = Field(
        (),
        description="Names by which browsers reach the page, such as `windowbox.example.com`, besides those "
        "of loopback. Requests for other names are refused: they may be another site's.",
    )
    link_key: SecretStr | None = Field(
        None,
        description="Key of the links that sign somebody in once, which `windowbox open` makes. Unset: none.",
    )
    monitor: str = Field("", description="URL of the NATS server's monitoring, for its own figures.")
