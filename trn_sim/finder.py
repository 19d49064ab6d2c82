"""Serves ``trn_sim.nki`` as ``nki``: the same module objects under both names.

The finder asks all others first, so a real AWS ``nki`` wins where one is installed.  What only bears the name is
stepped over: AWS's place-holder on PyPI, a package that raises when it is imported, and folders called ``nki``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["NkiFinder", "activate", "deactivate", "is_active"]

NAME = "nki"
HOME = "trn_sim.nki"


class _Loader(importlib.abc.Loader):
    """Loads nothing: hands out the module of the other name."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(HOME + spec.name[len(NAME) :])
        self._spec, self._module_loader = module.__spec__, getattr(module, "__loader__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the import system has just written the spec of the second name into the module: give the first one back
        module.__spec__, module.__loader__ = self._spec, self._module_loader


class NkiFinder(importlib.abc.MetaPathFinder):
    """Finds ``nki`` and its submodules in ``trn_sim.nki``.

    Attributes:
        override: also where a real ``nki`` is installed.
    """

    override = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of ``nki`` or ``nki.<submodule>``; None for other names, and where the real ``nki`` answers."""
        if fullname == NAME:
            if not self.override and self._real_exists():
                return None
        elif not fullname.startswith(NAME + ".") or sys.modules.get(NAME) is not sys.modules.get(HOME):
            return None
        found = importlib.util.find_spec(HOME + fullname[len(NAME) :])
        if found is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def _real_exists(self) -> bool:
        """Whether another finder knows a package ``nki`` with a submodule ``language``; imports neither."""
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(NAME, None)
            if spec is not None and spec.submodule_search_locations:
                locations = list(spec.submodule_search_locations)
                if importlib.machinery.PathFinder.find_spec(f"{NAME}.language", locations) is not None:
                    return True
        return False


_finder = NkiFinder()


def is_active() -> bool:
    """True between :func:`activate` and :func:`deactivate`."""
    return _finder in sys.meta_path


def activate(override: bool = False) -> None:
    """Make ``import nki`` give this simulator; calling it again changes ``override`` only.

    Args:
        override: also where a real AWS ``nki`` is installed, or imported already.
    """
    _finder.override = override
    if not is_active():
        sys.meta_path.insert(0, _finder)
    if override:
        _forget(ours=False)


def deactivate() -> None:
    """Undo :func:`activate`; modules imported under ``nki`` meanwhile are forgotten under that name."""
    if is_active():
        sys.meta_path.remove(_finder)
    _forget(ours=True)


def _forget(ours: bool) -> None:
    """Drop ``nki`` and its submodules from ``sys.modules``: those that are ours, or those that are not."""
    for name in [name for name in sys.modules if name == NAME or name.startswith(NAME + ".")]:
        if (sys.modules[name] is sys.modules.get(HOME + name[len(NAME) :])) is ours:
            del sys.modules[name]
