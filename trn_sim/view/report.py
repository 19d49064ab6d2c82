"""What a view of a result is: one object with a text for people and plain data for programs."""

from __future__ import annotations

import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["WIDTH", "Report", "dump_json", "open_whole"]

WIDTH = 100  # columns where no terminal says otherwise: the same text in every pipe and file


class Report(ABC):
    """A result that can be shown.  Subclasses give ``json`` and ``render``."""

    @abstractmethod
    def json(self) -> dict[str, Any]:
        """The result as plain data: dicts, lists, strings, numbers, None."""

    @abstractmethod
    def render(self, console: Console) -> None:
        """Print the result for people."""

    def text(self, *, width: int = WIDTH, color: bool = False) -> str:
        """What people see, as text of a fixed width."""
        from rich.console import Console

        file = io.StringIO()
        self.render(
            Console(
                file=file,
                width=width,
                force_terminal=color,
                color_system="standard" if color else None,
                no_color=not color,
                legacy_windows=False,
                highlight=False,
                emoji=False,
            )
        )
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def dump_json(data: Any) -> str:
    """JSON text, strict: no NaN and no infinity, so that every parser reads it."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


@contextmanager
def open_whole(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open ``path`` for writing so that it appears whole or not at all; what stood there before stays until then."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, mode, encoding=None if "b" in mode else "utf-8") as file:  # noqa: PTH123
            yield file
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
