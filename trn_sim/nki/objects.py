"""The base class of kernel classes."""

from __future__ import annotations

from enum import Enum
from inspect import get_annotations
from typing import Any

__all__ = ["NKIObject"]

_PLAIN = (type(None), bool, int, float, str, tuple, Enum)


class NKIObject:
    """Base of classes that kernels use, dataclasses or not.

    The NKI compiler makes the initializer from the attributes of the class, annotated or not, with ``@dataclass`` and
    without.  So here: plain class attributes count as fields of a dataclass, without ``@dataclass`` and ``__init__``
    the attributes are the arguments, and those without a value default to None, in dataclasses too (kernels of AWS
    leave some out).
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = get_annotations(cls)
        for name, value in vars(cls).items():
            if not name.startswith("_") and isinstance(value, _PLAIN):
                annotations.setdefault(name, Any)
        cls.__annotations__ = annotations
        for name, annotation in annotations.items():
            if not hasattr(cls, name) and "ClassVar" not in str(annotation) and "KW_ONLY" not in str(annotation):
                setattr(cls, name, None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = [name for cls in reversed(type(self).__mro__) for name in get_annotations(cls)]
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} arguments, not {len(args)}")
        given = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in given:
                raise TypeError(f"{type(self).__name__} got '{name}' twice")
        given.update(kwargs)
        for name in names:
            setattr(self, name, given.pop(name, getattr(type(self), name, None)))
        for name, value in given.items():
            setattr(self, name, value)
        finish = getattr(self, "__post_init__", None)
        if finish is not None:
            finish()
