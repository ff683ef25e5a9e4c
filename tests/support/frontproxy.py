"""What lets an API server pass requests on to API servers of extensions."""

from __future__ import annotations

from pathlib import Path

from sandbox.servers import certificates

_NAME = "front-proxy-client"


def front_proxy(folder: Path) -> tuple[str, ...]:
    """Its arguments: it shows a certificate, and tells in headers who asks."""
    ca = certificates.authority(folder / "front-proxy")
    client = certificates.client(ca, ca.certificate.parent, _NAME)
    return (
        f"--requestheader-client-ca-file={ca.certificate}",
        f"--requestheader-allowed-names={_NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={client.certificate}",
        f"--proxy-client-key-file={client.key}",
    )
