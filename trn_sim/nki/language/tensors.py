"""Making tensors, and moving them: ``nl.ndarray``, ``nl.load``, ``nl.store`` and their family.

Each function that moves or fills data issues the instructions that do it on the chip; which ones, its docstring says.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import index as as_index
from typing import Any

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.activation import ACTIVATIONS
from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.faults import ConstraintFault
from trn_sim.machine import current_core
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import located, note, unexpected
from trn_sim.nki.operator import operator
from trn_sim.nki.regions import MemoryRegion, region
from trn_sim.nki.tensor import DynamicSlice, NkiTensor, dtype_of

__all__ = [
    "broadcast_to",
    "copy",
    "device_print",
    "ds",
    "empty_like",
    "expand_dims",
    "full",
    "gather_flattened",
    "load",
    "load_transpose2d",
    "ndarray",
    "ones",
    "rand",
    "random_seed",
    "shared_constant",
    "shared_identity_matrix",
    "store",
    "zeros",
    "zeros_like",
]

SBUF = MemoryRegion.sbuf
_FILL_WIDTH = 2048  # elements of the tile that fills an HBM tensor
_THROUGH_FLOAT32 = (dtypes.float32, dtypes.bfloat16, dtypes.float16)  # a product with 1.0 keeps their values


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: MemoryRegion = SBUF,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """A new tensor; what it holds is undefined until it is written.

    Args:
        shape: on-chip (partitions, free sizes...), at least two dimensions.
        dtype: an ``nl`` dtype.
        buffer: memory region; kernels return tensors in ``nl.shared_hbm``.
        name: for messages and reports.
        address: on-chip: (start partition, byte offset in the partition); None lets the allocator choose.

    Raises:
        CapacityFault: the memory is full.
        ConstraintFault: no such shape or dtype in that memory.
    """
    where = region(buffer)
    kind = dtype_of(dtype)
    try:
        sizes = tuple(as_index(size) for size in shape)
    except TypeError:
        raise located(ConstraintFault(f"shape {shape!r} is not a tuple of integers")) from None
    core = current_core()
    if where.on_chip:
        if len(sizes) < 2:
            raise located(
                ConstraintFault(
                    f"tensor of shape {sizes} in {where.value}",
                    limit="on-chip tensors have two dimensions and more",
                    advice=f"use {(1, *sizes)} (one partition) or {(*sizes, 1)} (one element in each partition)",
                )
            )
        storage = core.allocate(where.space, sizes, kind, name=name, address=address)
        if where is SBUF and storage.offset >= core.target.sbuf_bytes:
            note(
                "SBUF overflows here; AWS's compiler would spill to HBM. Values are right, the modelled time leaves "
                "the spilling out",
                once=True,
            )
    else:
        if address is not None:
            raise located(
                ConstraintFault(
                    f"address={address} for a tensor in {where.value}",
                    limit="addresses are chosen in SBUF and PSUM only",
                )
            )
        shared = where is MemoryRegion.shared_hbm
        storage = core.shared_hbm(sizes, kind, name=name) if shared else core.hbm(sizes, kind, name=name)
    return NkiTensor(sizes, kind, storage, where, name)


def full(shape: Sequence[int], fill_value: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """A tensor of one value: one ``memset``; in HBM a small tile copied over it by DMA."""
    tensor = ndarray(shape, dtype, buffer, name)
    fill(tensor, fill_value)
    return tensor


def fill(tensor: NkiTensor, value: Any) -> None:
    """Write one value everywhere: one ``memset``; in HBM a small tile copied over it by DMA."""
    if tensor.dtype.kind in "iub" and float(value) == int(value):
        value = int(value)  # memset takes integers for integers
    if tensor.buffer.on_chip:
        nisa.memset(tensor, value)
        return
    flat = tensor.reshape((tensor.size,))
    width = min(tensor.size, _FILL_WIDTH)
    tile = ndarray((1, width), tensor.dtype)
    nisa.memset(tile, value)
    rows = tensor.size // width
    repeated = tile.ap([[width, 1], [0, rows], [1, width]])
    nisa.dma_copy(flat[: rows * width], repeated)
    if rows * width < tensor.size:
        rest = tensor.size - rows * width
        nisa.dma_copy(flat[rows * width :], tile[:, :rest])


def zeros(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """A tensor of zeros; see :func:`full`."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """A tensor of ones; see :func:`full`."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Zeros of the shape of ``x``, by default in its dtype and memory."""
    return zeros(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """An unwritten tensor of the shape of ``x``, by default in its dtype and memory."""
    return ndarray(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def shared_constant(constant: npt.NDArray[Any] | str | os.PathLike[str]) -> NkiTensor:
    """A tensor in shared HBM that holds a numpy array, or the array in a ``.npy`` file, from the start."""
    if isinstance(constant, (str, os.PathLike)):
        constant = np.load(constant)
    array = np.array(constant, order="C")  # a copy: the kernel's constant does not follow the caller's array
    storage = current_core().hbm(array.shape, dtype_of(array.dtype), name="constant", kind="input", array=array)
    return NkiTensor(array.shape, storage.dtype, storage, MemoryRegion.shared_hbm, "constant")


def shared_identity_matrix(n: int, dtype: Any = dtypes.uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """The identity matrix (n, n) in SBUF: ``memset`` of ones, then ``affine_select`` of the diagonal."""
    tensor = ndarray((n, n), dtype, name="identity") if dst is None else dst
    fill(tensor, 1)
    nisa.affine_select(tensor, [[-1, n]], 1, tensor, 0.0, ALU_OPS["equal"])
    return tensor


def load(src: NkiTensor, dtype: Any = None, **extra: Any) -> NkiTensor:
    """A new SBUF tile with the values of an HBM view: one ``dma_copy``, converting where ``dtype`` differs."""
    unexpected("nl.load", extra)
    tile = ndarray(src.shape, dtype or src.dtype, name=src.name)
    nisa.dma_copy(tile, src)
    return tile


def store(dst: NkiTensor, value: NkiTensor, **extra: Any) -> None:
    """HBM view ``dst`` = SBUF tile ``value`` of as many elements: one ``dma_copy``."""
    unexpected("nl.store", extra)
    nisa.dma_copy(dst, value)


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile (F, P) with the transpose of an HBM view (P, F): one ``dma_transpose``, then a conversion where
    ``dtype`` differs."""
    if src.ndim != 2:
        raise located(ConstraintFault(f"nl.load_transpose2d of shape {src.shape}", limit="two dimensions"))
    tile = ndarray(src.shape[::-1], src.dtype, name=src.name)
    nisa.dma_transpose(tile, src)
    return tile if dtype is None or dtype_of(dtype) == src.dtype else convert(tile, dtype)


@operator
def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the values of an on-chip tile: one ``tensor_copy``, converting where ``dtype`` differs."""
    return convert(x, dtype or x.dtype)


def convert(x: NkiTensor, dtype: Any) -> NkiTensor:
    """A new SBUF tile of ``dtype`` by one ``tensor_copy``."""
    tile = ndarray(x.shape, dtype)
    nisa.tensor_copy(tile, x)
    return tile


def assign(dst: NkiTensor, value: Any) -> None:
    """``dst[...] = value``: a fill, a ``tensor_copy`` on-chip, or a DMA where HBM takes part."""
    if not isinstance(value, NkiTensor):
        fill(dst, value)
    elif dst.buffer.on_chip and value.buffer.on_chip:
        nisa.tensor_copy(dst, value)
    else:
        nisa.dma_copy(dst, value)


def ds(start: Any, size: int) -> DynamicSlice:
    """The index ``start : start + size``; ``start`` may be a register."""
    return DynamicSlice(start, size)


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a new dimension of size 1."""
    return x.expand_dim(axis)


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: Any = None) -> NkiTensor:
    """``x`` with dimensions of size 1 repeated; same rank.

    Free dimensions are repeated by a view.  A row of float32, bfloat16 or float16 in partition 0 is spread over
    partitions by the Tensor Engine, as NeuronCore-v2's architecture guide says of ``broadcast_to``: the stationary
    matrix is a row of ones, so every value comes through (-0.0 as 0.0: PSUM sums start from 0).  float32 of at most
    one PSUM bank stays in PSUM, which Vector reads beside an SBUF operand at full rate; everything else goes on to
    SBUF by the Scalar Engine.  Other dtypes and rows are copied by one DMA with a source stride of 0, which keeps
    every bit.
    """
    wanted = tuple(shape)
    kind = x.dtype if dtype is None else dtype_of(dtype)
    if len(wanted) != x.ndim or any(a not in (b, 1) for a, b in zip(x.shape, wanted, strict=True)):
        raise located(
            ConstraintFault(
                f"nl.broadcast_to from {x.shape} to {wanted}", limit="the same rank; sizes agree or are 1 on the left"
            )
        )
    if x.buffer.on_chip and x.shape[0] != wanted[0]:
        x = _spread(x, wanted[0])
    for dim in range(x.ndim):
        if x.shape[dim] != wanted[dim]:
            x = x.broadcast(dim, wanted[dim])
    return x if kind == x.dtype else convert(x, kind)


def _spread(x: NkiTensor, partitions: int) -> NkiTensor:
    """The one partition of ``x`` copied to ``partitions`` of them; how, :func:`broadcast_to` says."""
    if x.buffer is not SBUF:
        x = convert(x, x.dtype)
    if x.dtype not in _THROUGH_FLOAT32 or not x.is_contiguous() or x.operand().start != 0:
        tile = ndarray((partitions, *x.shape[1:]), x.dtype)
        # seen from the DMA, SBUF is memory: all destination partitions read the same source bytes
        nisa.dma_copy(tile, x.expand_dim(1).broadcast(1, partitions))
        return tile
    row = x.reshape((1, x.size))
    column = ndarray((1, partitions), x.dtype)
    nisa.memset(column, 1.0, engine=Engine.gpsimd)
    step = current_core().target.psum_bank_bytes // dtypes.float32.itemsize
    stays = x.dtype == dtypes.float32 and x.size <= step
    tile = ndarray((partitions, x.size), x.dtype, MemoryRegion.psum if stays else SBUF)
    for start in range(0, x.size, step):
        end = min(start + step, x.size)
        bank = tile if stays else ndarray((partitions, end - start), dtypes.float32, MemoryRegion.psum)
        nisa.nc_matmul(bank, column, row[:, start:end], is_stationary_onezero=True, accumulate=False)
        if not stays:
            nisa.activation(tile[:, start:end], ACTIVATIONS["copy"], bank)
    return tile.reshape((partitions, *x.shape[1:]))


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """result[p, i] = flat(data[p])[indices[p, i]], by ``nc_n_gather``; ``indices`` uint32."""
    if axis != 0:
        raise located(ConstraintFault(f"nl.gather_flattened with axis={axis}", limit="axis 0"))
    tile = ndarray(indices.shape, data.dtype)
    nisa.nc_n_gather(tile, data, indices)
    return tile if dtype is None or dtype_of(dtype) == data.dtype else convert(tile, dtype)


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print the values of a tensor at once; costs no time on the modelled chip."""
    print(print_prefix, tensor.numpy())


def rand(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """Uniform values in [0, 1): ``rand2`` on NeuronCore-v4; before, 24 random bits by ``rng``, shifted and scaled."""
    tensor = ndarray(shape, dtype, buffer, name)
    if not tensor.buffer.on_chip:
        tile = rand(shape, dtype)
        nisa.dma_copy(tensor, tile)
    elif current_core().target.generation >= 4:
        nisa.rand2(tensor, 0.0, 1.0)
    else:
        bits = ndarray(shape, dtypes.uint32)
        nisa.rng(bits)
        nisa.tensor_scalar(bits, bits, ALU_OPS["right_shift"], 8)
        nisa.tensor_scalar(tensor, bits, ALU_OPS["multiply"], 2.0**-24)
    return tensor


def random_seed(seed: Any) -> None:
    """Seed the Vector Engine's generator with a (1, 1) tile of 32 bits in SBUF or PSUM."""
    if not isinstance(seed, NkiTensor):
        note("nl.random_seed takes a (1, 1) tile since NKI 0.2; the number is put into one")
        seed = full((1, 1), int(seed), dtypes.int32)
    nisa.set_rng_seed(seed)
