"""`python -m tools.release.envoyapi` writes windowbox/clients/xds/api.binpb: descriptors of Envoy's messages.

They are those of PyPI's xds-protos, in the version below, without options and comments. pip unpacks the
package into a temporary folder: installed beside other packages, it would overwrite some of their modules.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.85.0"
FILE = Path(__file__).parents[2] / "windowbox" / "clients" / "xds" / "api.binpb"
_DISCOVERY = "envoy.service.discovery.v3"
_FILTERS = "envoy.extensions.filters"
MESSAGES = (
    f"{_DISCOVERY}.discovery.DeltaDiscoveryRequest",
    f"{_DISCOVERY}.discovery.DeltaDiscoveryResponse",
    "envoy.config.cluster.v3.cluster.Cluster",
    "envoy.config.endpoint.v3.endpoint.ClusterLoadAssignment",
    "envoy.config.listener.v3.listener.Listener",
    "envoy.service.runtime.v3.rtds.Runtime",
    f"{_FILTERS}.network.connection_limit.v3.connection_limit.ConnectionLimit",
    f"{_FILTERS}.network.tcp_proxy.v3.tcp_proxy.TcpProxy",
    f"{_FILTERS}.udp.udp_proxy.v3.route.Route",
    f"{_FILTERS}.udp.udp_proxy.v3.udp_proxy.UdpProxyConfig",
    "envoy.extensions.matching.common_inputs.network.v3.network_inputs.SourceIPInput",
    "envoy.extensions.transport_sockets.proxy_protocol.v3.upstream_proxy_protocol."
    "ProxyProtocolUpstreamTransport",
    "envoy.extensions.transport_sockets.raw_buffer.v3.raw_buffer.RawBuffer",
    "xds.type.matcher.v3.ip.IPMatcher",
)
"""The messages that windowbox uses: package, file and name of each."""

_SCRIPT = """
import importlib, sys
from google.protobuf import descriptor_pb2

ANNOTATIONS = ("validate/", "udpa/annotations/", "xds/annotations/", "envoy/annotations/", "google/api/")
ANNOTATIONS += ("google/protobuf/descriptor.proto",)
files = {}

def add(file):
    if file.name in files or file.name.startswith(ANNOTATIONS):
        return
    for one in file.dependencies:
        add(one)
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    needed = [one for one in found.dependency if one in files]
    for field in ("dependency", "public_dependency", "weak_dependency", "extension", "service", "options"):
        found.ClearField(field)
    found.dependency.extend(needed)
    for one in found.message_type:
        strip(one)
    for one in found.enum_type:
        strip_enum(one)
    files[file.name] = found

def strip(message):
    is_map = message.options.map_entry
    for one in (message, *message.field, *message.oneof_decl):
        one.ClearField("options")
    if is_map:
        message.options.map_entry = True
    del message.reserved_range[:], message.reserved_name[:]
    for one in message.nested_type:
        strip(one)
    for one in message.enum_type:
        strip_enum(one)

def strip_enum(enum):
    has_aliases = enum.options.allow_alias
    for one in (enum, *enum.value):
        one.ClearField("options")
    if has_aliases:
        enum.options.allow_alias = True
    del enum.reserved_range[:], enum.reserved_name[:]

for name in sys.argv[1:]:
    module, message = name.rsplit(".", 1)
    add(getattr(importlib.import_module(module + "_pb2"), message).DESCRIPTOR.file)
found = descriptor_pb2.FileDescriptorSet(file=files.values())
sys.stdout.buffer.write(found.SerializeToString(deterministic=True))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv, python = f"{folder}/venv", f"{folder}/venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", venv], timeout=120, check=True)
        package = f"xds-protos=={VERSION}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], timeout=600, check=True)
        script = [python, "-c", _SCRIPT, *MESSAGES]
        FILE.write_bytes(subprocess.run(script, capture_output=True, timeout=120, check=True).stdout)


if __name__ == "__main__":
    main()
