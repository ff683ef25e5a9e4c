"""Certificate requests as kubelets make them."""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
_USAGES = {CLIENT: "client auth", SERVING: "server auth"}


def request(node: str, signer: str = CLIENT, **metadata: str) -> dict[str, Any]:
    """The request of this node's kubelet. Real names are a hash of the key, with upper case and `_`."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = asked.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": {
            "signerName": signer,
            "request": base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode(),
            "usages": ["digital signature", _USAGES[signer]],
        },
    }
