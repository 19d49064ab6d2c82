"""Serves our modules under the names that kernels import; the same module objects under both names.

``trn_sim.nki`` is ``nki``, and ``trn_sim.neuronxcc`` the older ``neuronxcc``.

The finder asks all others first, so a real AWS package wins where one is installed.  What only bears the name is
stepped over: AWS's place-holders on PyPI, which raise when they are imported, and folders of that name.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

__all__ = ["NkiFinder", "Served", "activate", "deactivate", "is_active", "serve"]


@dataclass(frozen=True)
class Served:
    """One name that the finder answers to, with everything below it.

    Attributes:
        home: our module of that name.
        witness: a submodule that only a real package of that name has; "" if any package of the name is real.
    """

    home: str
    witness: str = ""


class _Loader(importlib.abc.Loader):
    """Loads nothing: hands out the module of the other name."""

    def __init__(self, home: str) -> None:
        self._home = home

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._home)
        self._spec, self._module_loader = module.__spec__, getattr(module, "__loader__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the import system has just written the spec of the second name into the module: give the first one back
        module.__spec__, module.__loader__ = self._spec, self._module_loader


class NkiFinder(importlib.abc.MetaPathFinder):
    """Finds the served names in our packages.

    Attributes:
        override: also where a real package of the name is installed.
        served: by name; a name below another one may have a home of its own.
    """

    def __init__(self) -> None:
        self.override = False
        self.served: dict[str, Served] = {
            "nki": Served("trn_sim.nki", witness="language"),
            "neuronxcc": Served("trn_sim.neuronxcc", witness="nki"),
        }

    def root(self, fullname: str) -> str | None:
        """The longest served name that is ``fullname`` or above it."""
        name = fullname
        while name not in self.served:
            name, _, _ = name.rpartition(".")
            if not name:
                return None
        return name

    def home(self, fullname: str) -> str | None:
        """Our module for ``fullname``, or None."""
        root = self.root(fullname)
        return None if root is None else self.served[root].home + fullname[len(root) :]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a served name; None for other names, and where the real package answers."""
        home = self.home(fullname)
        if home is None:
            return None
        parent, _, _ = fullname.rpartition(".")
        if not parent:
            if not self.override and self._real_exists(fullname):
                return None
        elif sys.modules.get(parent) is not sys.modules.get(self.home(parent) or ""):
            return None
        found = importlib.util.find_spec(home)
        if found is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(home), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def _real_exists(self, name: str) -> bool:
        """Whether another finder knows a package ``name`` with the submodule that tells a real one; imports neither."""
        witness = self.served[name].witness
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, None)
            if spec is None:
                continue
            if not witness:
                return True
            locations = list(spec.submodule_search_locations or ())
            if locations and importlib.machinery.PathFinder.find_spec(f"{name}.{witness}", locations) is not None:
                return True
        return False


_finder = NkiFinder()


def is_active() -> bool:
    """True between :func:`activate` and :func:`deactivate`."""
    return _finder in sys.meta_path


def serve(name: str, home: str, *, witness: str = "") -> None:
    """Answer to one more name; see :class:`Served`."""
    _finder.served[name] = Served(home, witness)


def activate(override: bool = False, *, harness: str | None = None) -> None:
    """Make ``import nki`` and ``import neuronxcc.nki`` give this simulator; calling it again changes the options only.

    Args:
        override: also where a real AWS package is installed, or imported already.
        harness: a foreign test suite to make ready for, see :mod:`trn_sim.harness`; ``"nki-library"``.

    Raises:
        ValueError: no harness of that name.
    """
    _finder.override = override
    if not is_active():
        sys.meta_path.insert(0, _finder)
    if harness is not None:
        from trn_sim.harness import prepare

        prepare(harness)
    if override:
        _forget(ours=False)


def deactivate() -> None:
    """Undo :func:`activate`; modules imported under served names meanwhile are forgotten under those names."""
    if is_active():
        sys.meta_path.remove(_finder)
    _forget(ours=True)


def _forget(ours: bool) -> None:
    """Drop served names from ``sys.modules``: the modules that are ours, or those that are not."""
    for name in list(sys.modules):
        home = _finder.home(name)
        if home is not None and (sys.modules[name] is sys.modules.get(home)) is ours:
            del sys.modules[name]
