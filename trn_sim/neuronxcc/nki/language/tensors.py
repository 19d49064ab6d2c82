"""Making, loading and storing tensors in the older namespace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from operator import index as as_index
from typing import Any

import numpy as np

from isa import dtypes
from isa.dtypes import DType
from isa.faults import ConstraintFault
from trn_sim.machine import current_core
from trn_sim.neuronxcc.nki import _grid
from trn_sim.neuronxcc.nki._allocation import Allocation
from trn_sim.neuronxcc.nki._assign import copy_into, fetch, move, number_for
from trn_sim.neuronxcc.nki._issue import compute, readable
from trn_sim.neuronxcc.nki._tile import Tile, settle
from trn_sim.neuronxcc.nki.isa._functions import tile_of
from trn_sim.nki import isa as nisa
from trn_sim.nki import language as new
from trn_sim.nki._support import located, note
from trn_sim.nki.language.tensors import fill
from trn_sim.nki.operator import operator
from trn_sim.nki.regions import MemoryRegion, region
from trn_sim.nki.tensor import NkiTensor, dtype_of

__all__ = [
    "broadcast_to", "copy", "device_print", "empty_like", "expand_dims", "full", "gather_flattened", "load",
    "load_transpose2d", "ndarray", "ones", "par_dim", "rand", "random_seed", "shared_constant",
    "shared_identity_matrix", "store", "zeros", "zeros_like",
]  # fmt: skip

SBUF = MemoryRegion.sbuf
PSUM = MemoryRegion.psum


class PartitionSize(int):
    """A size that is marked as the partition dimension of a shape."""

    __slots__ = ()


def par_dim(value: int) -> PartitionSize:
    """Mark the partition dimension of a shape; dimensions in front of it are blocks."""
    return PartitionSize(value)


def adopt(tensor: NkiTensor) -> Tile:
    """A tensor of the present namespace as one of the older."""
    tile = Tile(tensor.shape, tensor.dtype, tensor.storage, tensor.buffer, tensor.name)
    tile.strides, tile.offset, tile._row, tile._dynamic = tensor.strides, tensor.offset, tensor._row, tensor._dynamic
    return tile


def _sizes(shape: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of the blocks, and of the tile."""
    given = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    marked = [at for at, size in enumerate(given) if isinstance(size, PartitionSize)]
    try:
        sizes = tuple(as_index(size) for size in given)
    except TypeError:
        raise located(ConstraintFault(f"shape {shape!r} is not a tuple of integers")) from None
    if len(marked) > 1:
        raise located(ConstraintFault(f"shape {shape!r} has {len(marked)} nl.par_dim", limit="one partition dimension"))
    at = marked[0] if marked else 0
    return sizes[:at], sizes[at:]


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> Tile:
    """A new tensor; what it holds is undefined until it is written.

    Args:
        shape: on-chip ``(blocks..., nl.par_dim(partitions), free sizes...)``; without ``nl.par_dim`` the first size is
            the partition.
        dtype: an ``nl`` or numpy dtype.
        buffer: a memory region, ``nki.compiler.sbuf.mod_alloc(...)`` and its like, or None for SBUF.
        name: for messages and reports.

    Hints to AWS's compiler (``lazy_initialization=``) have no effect.
    """
    settle()
    kind = dtype_of(dtype)
    if isinstance(buffer, Allocation):
        blocks, sizes = _sizes(shape)
        return buffer.tile(blocks, _flat(sizes), kind, name)
    where = SBUF if buffer is None else region(getattr(buffer, "region", buffer))
    if not where.on_chip:
        return _in_hbm(tuple(as_index(size) for size in shape), kind, where, name)
    blocks, sizes = _sizes(shape)
    sizes = _flat(sizes)
    core = current_core()
    if not blocks:
        storage = core.allocate(where.space, sizes, kind, name=name)
        _note_overflow(storage, where)
        return Tile(sizes, kind, storage, where, name)
    elements = prod(sizes[1:])
    step = elements
    if where is PSUM:
        bank = core.target.psum_bank_bytes // kind.itemsize
        step = bank
        while step < elements:
            step += bank
        while step % 2 == 0 and step // 2 >= elements and step <= bank:
            step //= 2
    storage = core.allocate(where.space, (sizes[0], prod(blocks), step), kind, name=name)
    _note_overflow(storage, where)
    return Tile.of_blocks(blocks, sizes, kind, storage, where, name)


def _note_overflow(storage: Any, where: MemoryRegion) -> None:
    target = current_core().target
    if storage.offset >= (target.sbuf_bytes if where is SBUF else target.psum_bytes):
        note(
            f"{where.name.upper()} overflows here: tiles live until Python forgets them, where AWS's compiler reuses "
            "or spills what is dead. Values are right; the modelled time has neither the waits nor the spilling",
            once=True,
        )


def _flat(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """On-chip tiles have two dimensions and more."""
    return sizes if len(sizes) > 1 else (*sizes, 1)


def _in_hbm(sizes: tuple[int, ...], kind: DType, where: MemoryRegion, name: str) -> Tile:
    core = current_core()
    make = core.shared_hbm if where is MemoryRegion.shared_hbm else core.hbm
    storage = _grid.shared(name, sizes, kind, lambda: make(sizes, kind, name=name))
    return Tile(sizes, kind, storage, where, name)


def full(shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **hints: Any) -> Tile:
    """A tensor of one value, by ``memset``; zeros in PSUM take none where matmuls write first."""
    tile = ndarray(shape, dtype, buffer=buffer, name=name, **hints)
    if tile.buffer is PSUM and fill_value == 0:
        tile._zero = True
        return tile
    if not tile.buffer.on_chip:
        fill(tile, fill_value)
        return tile
    whole = tile
    if tile._blocks:
        storage = tile.storage
        whole = Tile((storage.shape[0], prod(storage.shape[1:])), tile.dtype, storage, tile.buffer, name)
    nisa.memset(whole, number_for(whole, fill_value))
    return tile


def zeros(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **hints: Any) -> Tile:
    """A tensor of zeros; see :func:`full`."""
    return full(shape, 0, dtype, buffer=buffer, name=name, **hints)


def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Tile:
    """A tensor of ones; see :func:`full`."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def zeros_like(a: Tile, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tile:
    """Zeros of the shape of ``a``, by default in its dtype, in SBUF."""
    return zeros(a.shape, dtype or a.dtype, buffer=buffer, name=name)


def empty_like(a: Tile, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tile:
    """An unwritten tensor of the shape of ``a``, by default in its dtype, in SBUF."""
    return ndarray(a.shape, dtype or a.dtype, buffer=buffer, name=name)


def load(src: Tile, *, mask: Any = None, dtype: Any = None, name: str | None = None) -> Tile:
    """A new SBUF tile with the values of an HBM view: one ``dma_copy``, converting where ``dtype`` differs.

    A view of one dimension goes over partitions.  Elements that the mask leaves out are undefined.
    """
    settle()
    src = tile_of(src, "load", "src")
    if src.ndim < 2:
        src = src.expand_dim(1)
    kind = src.dtype if dtype is None else dtype_of(dtype)
    fixed = {"name": name} if name else {}
    return compute(fetch, src.shape, kind, {"src": src}, fixed, mask, exact=kind == src.dtype)


def store(dst: Tile, value: Any, *, mask: Any = None) -> None:
    """HBM view ``dst`` = a tile, or a number, by DMA; elements that the mask leaves out stay as they are."""
    dst = tile_of(dst, "store", "dst")
    if not isinstance(value, Tile):
        value = full((1, 1), value, dst.dtype)
        if dst.shape[0] != 1:
            value = broadcast_to(value, (min(dst.shape[0], 128), 1))
        value = value.reshape((value.shape[0], *(1 for _ in dst.shape[1:])))
    copy_into(dst, readable(value), mask)


def load_transpose2d(src: Tile, *, mask: Any = None, dtype: Any = None) -> Tile:
    """A new SBUF tile (F, P) with the transpose of an HBM view (P, F), by ``dma_transpose``."""
    from trn_sim.neuronxcc.nki.isa import dma_transpose

    moved = dma_transpose(src, mask=mask)
    return moved if dtype is None or dtype_of(dtype) == moved.dtype else copy(moved, dtype=dtype)


@operator
def copy(src: Tile, *, mask: Any = None, dtype: Any = None) -> Tile:
    """A new SBUF tile with the values of another: one ``tensor_copy``, converting where ``dtype`` differs."""
    settle()
    src = tile_of(src, "copy", "src")
    if not src._row:
        return load(src, mask=mask, dtype=dtype)
    kind = src.dtype if dtype is None else dtype_of(dtype)
    return compute(move, src.shape, kind, {"src": src}, {}, mask, exact=kind == src.dtype)


def broadcast_to(src: Tile, shape: Sequence[int], *, dtype: Any = None) -> Tile:
    """Dimensions of size 1 repeated: free ones by a view, one partition to many through the Tensor Engine."""
    settle()
    return adopt(new.broadcast_to(readable(tile_of(src, "broadcast_to", "src")), tuple(shape), dtype))


def expand_dims(data: Tile, axis: int) -> Tile:
    """A view with a new dimension of size 1."""
    return data.expand_dim(axis)


def gather_flattened(data: Tile, indices: Tile, *, mask: Any = None, dtype: Any = None) -> Tile:
    """result[p, i] = flat(data[p])[indices[p, i]]; ``indices`` uint32."""
    kind = data.dtype if dtype is None else dtype_of(dtype)
    return compute(nisa.nc_n_gather, indices.shape, kind, {"indices": indices}, {"data": readable(data)}, mask)


def shared_constant(constant: Any, dtype: Any = None) -> Tile:
    """A tensor in HBM that holds a numpy array, or the array in a ``.npy`` file, from the start."""
    array = np.load(constant) if isinstance(constant, (str, os.PathLike)) else np.asarray(constant)
    if dtype is not None:
        array = array.astype(dtype_of(dtype).numpy)
    elif array.dtype == np.float64:
        array = array.astype(np.float32)
    elif array.dtype == np.int64:
        array = array.astype(np.int32)
    return adopt(new.shared_constant(array))


def shared_identity_matrix(n: int, dtype: Any = dtypes.uint8) -> Tile:
    """The identity matrix (n, n) in HBM."""
    return shared_constant(np.eye(n), dtype)


def device_print(prefix: str, x: Tile, *, mask: Any = None) -> None:  # noqa: ARG001
    """Print the values of a tile at once; costs no time on the modelled chip."""
    settle()
    print(prefix, readable(x).numpy())


def rand(shape: Any, dtype: Any = dtypes.float32) -> Tile:
    """Uniform values in [0, 1) in SBUF."""
    settle()
    return adopt(new.rand(tuple(shape), dtype))


def random_seed(seed: Any, *, mask: Any = None) -> None:  # noqa: ARG001
    """Seed the Vector Engine's generator with an integer or a (1, 1) tile."""
    settle()
    tile = seed if isinstance(seed, Tile) else full((1, 1), int(seed), dtypes.int32)
    new.random_seed(tile)
