"""``neuronxcc.nki.language.constants``: sizes of dtypes."""

from __future__ import annotations

from typing import Any

from trn_sim.nki.tensor import dtype_of

__all__ = ["sizeinbytes"]


def sizeinbytes(dtype: Any) -> int:
    """Bytes of an element of a dtype."""
    return dtype_of(dtype).itemsize
