"""Annotations of kernels: ``nt.tensor``, ``nt.tensor[128, 512]``, ``nt.mutable_tensor``.  They check nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["mutable_tensor", "tensor"]


class _Annotation:
    """A tensor parameter, optionally with its shape."""

    def __init__(self, name: str, shape: tuple[Any, ...] | None = None) -> None:
        self.name = name
        self.shape = shape

    def __getitem__(self, shape: Any) -> _Annotation:
        return _Annotation(self.name, shape if isinstance(shape, tuple) else (shape,))

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"nki.typing.{self.name} is an annotation; nl.ndarray makes tensors")

    def __repr__(self) -> str:
        return f"nki.typing.{self.name}" + ("" if self.shape is None else str(list(self.shape)))


tensor = _Annotation("tensor")
mutable_tensor = _Annotation("mutable_tensor")
