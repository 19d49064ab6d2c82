"""``.indirect`` views in kernels."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault


@pytest.fixture(autouse=True)
def v4(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def table(offsets, partitions, group):
    """(partitions, K): offset i at [i % group, i // group], repeated for each group."""
    one = np.zeros((-(-len(offsets) // group), group), np.int32)
    one.reshape(-1)[: len(offsets)] = offsets
    return np.tile(one.T, (partitions // group, 1))


@nki.jit
def gather(data, offsets, count):
    tile, index = nl.load(data), nl.load(offsets)
    picked = tile.indirect(index, num_elem=count)
    assert picked.shape == (data.shape[0], count)
    assert picked.is_indirect()
    out = nl.ndarray(picked.shape, data.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(out, picked[...])
    result = nl.ndarray(picked.shape, data.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(result, out)
    return result


def test_gather():
    data = np.random.default_rng(0).standard_normal((128, 40)).astype(np.float32)
    offsets = [39, 0, 5, 5, *range(20)]
    out = nki.simulate(gather)(data, table(offsets, 128, 16), len(offsets))
    np.testing.assert_array_equal(out, data[:, offsets])


def test_all_offsets_by_default():
    @nki.jit
    def kernel(data, offsets):
        tile, index = nl.load(data), nl.load(offsets)
        out = nl.ndarray((16, index.size), data.dtype, buffer=nl.sbuf)
        nisa.activation(out, nl.copy, tile.indirect(index))
        result = nl.ndarray(out.shape, data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(result, out)
        return result

    data = np.arange(16 * 4, dtype=np.float32).reshape(16, 4)
    offsets = np.arange(32).reshape(2, 16).T.astype(np.int32) % 4
    np.testing.assert_array_equal(nki.simulate(kernel)(data, offsets), data[:, np.arange(32) % 4])


def test_product_of_gathered_columns_scattered():
    """The Tensor Engine reads its offsets over 32 partitions."""

    @nki.jit
    def kernel(left, right, offsets, places):
        stationary, moving, index, where = nl.load(left), nl.load(right), nl.load(offsets), nl.load(places)
        psum = nl.ndarray((64, 8), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(psum.indirect(where, 3), stationary, moving.indirect(index, 3))
        out = nl.ndarray((64, 3), nl.float32, buffer=nl.sbuf)
        for number, place in enumerate((6, 1, 4)):
            nisa.tensor_copy(out[:, number : number + 1], psum[:, place : place + 1])
        result = nl.ndarray((64, 3), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(result, out)
        return result

    rng = np.random.default_rng(1)
    left, right = (rng.integers(-4, 5, (64, n)).astype(np.float16) for n in (64, 40))
    offsets = [33, 2, 17]
    out = nki.simulate(kernel)(left, right, table(offsets, 64, 32), table([6, 1, 4], 64, 32))
    np.testing.assert_array_equal(out, left.astype(np.float32).T @ right[:, offsets].astype(np.float32))


def test_mx_pairs_share_an_index():
    @nki.jit
    def kernel(left, right, offsets, agree):
        sides = []
        for data in (left, right):
            tile = nl.load(data)
            packed = nl.ndarray((64, data.shape[1] // 4), nl.float8_e5m2_x4, buffer=nl.sbuf)
            scale = nl.ndarray(packed.shape, nl.float8_e8m0fnu, buffer=nl.sbuf)
            nisa.quantize_mx(packed, tile, scale)
            sides.append((packed, scale))
        index = nl.load(offsets)
        (stationary, left_scale), (moving, right_scale) = sides
        psum = nl.ndarray((stationary.shape[1], 2), nl.float32, buffer=nl.psum)
        moving_scale = right_scale.indirect(index, 2) if agree else right_scale[:, :2]
        nisa.nc_matmul_mx(psum, stationary, moving.indirect(index, 2), left_scale, moving_scale)
        out = nl.copy(psum)
        result = nl.ndarray(out.shape, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(result, out)
        return result

    rng = np.random.default_rng(2)
    left, right = (2.0 ** rng.integers(-6, 7, (64, 4 * n)).astype(np.float16) for n in (4, 10))
    offsets = [7, 2]
    out = nki.simulate(kernel)(left, right, table(offsets, 64, 32), True)
    wide = [side.astype(np.float32).reshape(64, -1, 4) for side in (left, right)]
    np.testing.assert_allclose(out, np.einsum("kiq,kjq->ij", wide[0], wide[1][:, offsets]), rtol=1e-3)
    with pytest.raises(ConstraintFault, match="is indexed otherwise than 'moving'"):
        nki.simulate(kernel)(left, right, table(offsets, 64, 32), False)


def test_not_on_trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        nki.simulate(gather)(np.zeros((16, 4), np.float32), np.zeros((16, 1), np.int32), 1)


def test_refused_views(core_v4):
    tile, index = nl.ndarray((16, 8), nl.float32), nl.ndarray((16, 1), nl.int32)
    picked = tile.indirect(index, 4)
    assert picked[...].shape == (16, 4)
    assert picked[:, :].shape == (16, 4)
    for view in (
        lambda: picked[:, 0:2],
        lambda: picked.reshape((16, 2, 2)),
        lambda: picked.slice(1, 0, 2),
        lambda: picked[0:8],
    ):
        with pytest.raises(ConstraintFault, match="is indirect"):
            view()
    with pytest.raises(ConstraintFault, match="run-time address already"):
        picked.indirect(index, 4)
    with pytest.raises(ConstraintFault, match="has gaps"):
        tile[:, 0:8:2].indirect(index, 4)
    with pytest.raises(ConstraintFault, match=r"shape \(16, K\)"):
        tile.indirect(nl.ndarray((32, 1), nl.int32), 4)
    with pytest.raises(ConstraintFault, match="0 offsets"):
        tile.indirect(index, 0)
    with pytest.raises(ConstraintFault, match="SBUF and PSUM"):
        nl.ndarray((16, 8), nl.float32, buffer=nl.private_hbm).indirect(index, 4)
    with pytest.raises(ConstraintFault, match="is indirect; copy it with"):
        picked.numpy()
    assert "(16, 4)" in repr(picked)
