"""``nc_transpose``: one function of NKI, two instructions of the chip."""

from __future__ import annotations

import inspect
from typing import Any

from isa.engine import Engine
from isa.tensor import TensorTranspose
from isa.vector_move import VectorTranspose
from trn_sim.nki.isa._generate import NkiInstruction, function
from trn_sim.nki.regions import MemoryRegion

__all__ = ["nc_transpose"]

_by_tensor_engine = function(TensorTranspose)
_by_vector_engine = function(VectorTranspose)


def nc_transpose(
    dst: Any, data: Any, engine: Engine = Engine.unknown, name: str | None = None, **extra: Any
) -> NkiInstruction:
    """dst[f, p] = data[p, f]; several free dimensions of data count as one.

    The Tensor Engine takes up to 128 x 128 from SBUF to PSUM, the Vector Engine up to 32 x 32 between any of the two.
    With ``engine.unknown`` the destination decides (release notes of NKI 0.4): the Tensor Engine where dst is in PSUM
    and data in SBUF, else the Vector Engine.
    """
    if engine is Engine.unknown:
        where = getattr(dst, "buffer", None), getattr(data, "buffer", None)
        engine = Engine.tensor if where == (MemoryRegion.psum, MemoryRegion.sbuf) else Engine.vector
    issue = _by_vector_engine if engine is Engine.vector else _by_tensor_engine
    return issue(dst, data, engine, name, **extra)


nc_transpose.__signature__ = inspect.signature(_by_tensor_engine)  # type: ignore[attr-defined]
