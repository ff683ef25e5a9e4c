"""The used parts of kubernetes_asyncio, kubeconfigs and credentials, without the classes of all API objects.

Any import from the library runs its `__init__`, which imports 850 modules of those classes: 36 MB of memory
and a quarter of a second in each process, for code that is never called here. So it is with urllib3.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

_LIBRARY = "kubernetes_asyncio"
_CLIENT = f"{_LIBRARY}.client"
_UNUSED = "urllib3"
"""Imported for a function that encodes passwords, which `kube_config` does itself."""


@contextlib.contextmanager
def _empty_packages(*names: str) -> Iterator[None]:
    """Let modules of these packages be imported while the packages themselves are empty.

    Afterwards other code can import the packages as a whole.
    """
    library = importlib.util.find_spec(_LIBRARY)
    folders = (library and library.submodule_search_locations) or []
    for name in names:
        sys.modules[name] = package = ModuleType(name)
        vars(package).update(__path__=[str(Path(folder, *name.split(".")[1:])) for folder in folders])
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


if _LIBRARY not in sys.modules:
    try:
        with _empty_packages(_LIBRARY, _CLIENT, *{_UNUSED} - sys.modules.keys()):
            configuration = importlib.import_module(f"{_CLIENT}.configuration").Configuration
            # ApiClient is what functions return that we do not call.
            vars(sys.modules[_CLIENT]).update(Configuration=configuration, ApiClient=object)
            importlib.import_module(f"{_LIBRARY}.config")
    except ImportError:
        # This version needs more of its packages: they are imported as a whole.
        for loaded in [name for name in sys.modules if name.startswith(f"{_LIBRARY}.")]:
            del sys.modules[loaded]

from kubernetes_asyncio.client.configuration import Configuration  # noqa: E402
from kubernetes_asyncio.config import kube_config, load_incluster_config  # noqa: E402


class _InlineData(kube_config.FileOrData):
    """Inline certificates and keys as files, in the folder given.

    The library leaves each of them open, and keeps it until the process ends.
    """

    def _create_temp_file_with_content(self, content: str | bytes) -> str:
        with tempfile.NamedTemporaryFile(dir=self._temp_file_path, delete=False) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return file.name


vars(kube_config).update(FileOrData=_InlineData)

__all__ = ["Configuration", "kube_config", "load_incluster_config"]
