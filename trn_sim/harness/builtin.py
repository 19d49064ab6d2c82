"""``nki.builtin``: the suite puts the module among Python's builtins; nothing is taken from it."""

from __future__ import annotations

__all__: list[str] = []
