"""The dtypes of ``nki.language`` under both of their names, and the sizes of ``nl.tile_size``."""

import nki.dtype
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from isa.target import TRN1, TRN2, TRN3
from trn_sim.machine import Core, Options, use_core

BITS = {
    "bool_": 8, "int8": 8, "int16": 16, "int32": 32, "uint8": 8, "uint16": 16, "uint32": 32, "float16": 16,
    "bfloat16": 16, "float32": 32, "tfloat32": 32, "float8_e4m3": 8, "float8_e4m3fn": 8, "float8_e5m2": 8,
    "float8_e8m0fnu": 8, "float8_e5m2_x4": 32, "float8_e4m3fn_x4": 32, "float4_e2m1fn_x4": 16,
}  # fmt: skip


@pytest.mark.parametrize("name", BITS)
def test_dtype_is_its_name_and_takes_its_bits(core_v4, name):
    dtype = getattr(nl, name)
    assert isinstance(dtype, nl.DType)
    assert getattr(nki.dtype, name) is dtype
    assert dtype == name.rstrip("_")
    assert {dtype: 1}[dtype] == 1
    tile = nl.ndarray((4, 8), dtype)
    assert tile.dtype is dtype
    assert tile.view(nl.uint8).shape == (4, BITS[name])
    nisa.memset(tile, 0)
    bits = tile.view(nl.uint8).numpy()
    assert (bits == (0xFF if name == "float8_e8m0fnu" else 0)).all()  # a power of two is never 0: NaN


@pytest.mark.parametrize("name", [name for name in BITS if "_x4" not in name and "e8m0" not in name])
def test_values_of_dtype(core_v4, name):
    tile = nl.full((2, 4), 1, getattr(nl, name))
    assert (np.asarray(tile.numpy(), np.float32) == 1).all()


@pytest.mark.parametrize(("target", "kib"), [(TRN1, 192), (TRN2, 224), (TRN3, 256)])
def test_tile_size(target, kib):
    with use_core(Core(Options(target=target))):
        assert nl.tile_size.pmax == 128
        assert nl.tile_size.psum_fmax == nl.tile_size.psum_bank_fmax == 512
        assert nl.tile_size.psum_bank_fmax_bytes == 2048
        assert nl.tile_size.psum_num_banks == 8
        assert nl.tile_size.gemm_stationary_fmax == 128
        assert nl.tile_size.gemm_moving_fmax == nl.tile_size.bn_stats_fmax == 512
        assert (nl.tile_size.psum_min_align, nl.tile_size.sbuf_min_align) == (4, 1)
        assert nl.tile_size.sbuf_size_bytes == 128 * kib * 1024
        assert nl.tile_size.sbuf_fmax_bytes == nl.tile_size.total_available_sbuf_size == kib * 1024
        assert nl.tile_size.sbuf_fmax == kib * 256


def test_tile_size_where_a_bank_is_kept(core, monkeypatch):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert nl.tile_size.psum_num_banks == 7
