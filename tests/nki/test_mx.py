"""MX tensors in kernels: packed views of the host's integers, quantization, products, scales that share a tile."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault


def packed(rng, shape, kind=ml_dtypes.float8_e4m3fn):
    """(numbers (P, F, 4), the host's uint32 (P, F))."""
    numbers = rng.standard_normal((*shape, 4)).astype(kind)
    return numbers.astype(np.float32), numbers.view(np.uint8).reshape(shape[0], -1).view(np.uint32)


def spread(codes):
    """Scales (P / 8, F) as (P, F), four to a quadrant."""
    rows, columns = codes.shape
    tall = np.zeros((rows * 8, columns), np.uint8)
    for row in range(rows):
        tall[row // 4 * 32 + row % 4] = codes[row]
    return tall


def product(left, left_codes, right, right_codes):
    """The definition, in float64."""
    sides = []
    for numbers, codes in ((left, left_codes), (right, right_codes)):
        scales = 2.0 ** (codes.astype(np.float64) - 127)
        sides.append(numbers * np.repeat(scales, 8, axis=0)[:, :, None])
    return np.einsum("kiq,kjq->ij", *sides)


@nki.jit
def offline(stationary, moving, stationary_scale, moving_scale, dtype):
    """Data quantized on the host, given as integers; scales already spread."""
    tiles = []
    for data, scale in ((stationary, stationary_scale), (moving, moving_scale)):
        data = data.view(dtype)
        tile = nl.ndarray(data.shape, dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, data)
        scales = nl.ndarray(scale.shape, nl.float8_e8m0fnu, buffer=nl.sbuf)
        nisa.dma_copy(scales, scale.view(nl.float8_e8m0fnu))
        tiles.append((tile, scales))
    (left, left_scale), (right, right_scale) = tiles
    psum = nl.ndarray((left.shape[1], right.shape[1]), nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(psum, left, right, left_scale, right_scale)
    out = nl.ndarray(psum.shape, nl.float32, buffer=nl.shared_hbm)
    copied = nl.ndarray(psum.shape, nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(copied, psum)
    nisa.dma_copy(out, copied)
    return out


@pytest.fixture(autouse=True)
def v4(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


@pytest.mark.parametrize("host", [np.uint32, np.uint16, np.uint8])
def test_integers_of_the_host_are_viewed_as_packed(host):
    rng = np.random.default_rng(0)
    (left, left_bits), (right, right_bits) = packed(rng, (128, 32)), packed(rng, (128, 64))
    codes = rng.integers(124, 130, (16, 32)).astype(np.uint8), rng.integers(124, 130, (16, 64)).astype(np.uint8)
    out = nki.simulate(offline)(
        left_bits.view(host), right_bits.view(host), spread(codes[0]), spread(codes[1]), nl.float8_e4m3fn_x4
    )
    np.testing.assert_allclose(out, product(left, codes[0], right, codes[1]), rtol=1e-4, atol=1e-3)


def test_fp4_from_bytes():
    rng = np.random.default_rng(1)
    left = rng.standard_normal((32, 4, 4)).astype(ml_dtypes.float4_e2m1fn)
    right = rng.standard_normal((32, 6, 4)).astype(ml_dtypes.float4_e2m1fn)

    def two_to_a_byte(numbers):
        codes = numbers.view(np.uint8).reshape(32, -1, 2)
        return codes[..., 0] | codes[..., 1] << 4

    ones = np.full((4, 4), 127, np.uint8), np.full((4, 6), 128, np.uint8)
    out = nki.simulate(offline)(two_to_a_byte(left), two_to_a_byte(right), *ones, nl.float4_e2m1fn_x4)
    want = product(left.astype(np.float32), ones[0], right.astype(np.float32), ones[1])
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-4)


def test_packed_bits_survive_every_move():
    """HBM to SBUF, tensor_copy, and back: NaN codes and all."""

    @nki.jit
    def move(data):
        view = data.view(nl.float8_e5m2_x4)
        tile = nl.ndarray(view.shape, view.dtype, buffer=nl.sbuf)
        again = nl.ndarray(view.shape, view.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, view)
        nisa.memset(again, 0)
        nisa.tensor_copy(again, tile)
        out = nl.ndarray(data.shape, data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out.view(nl.float8_e5m2_x4), again)
        return out

    data = np.random.default_rng(2).integers(0, 2**32, (64, 8), dtype=np.uint32)
    np.testing.assert_array_equal(nki.simulate(move)(data), data)


def quantized_product(source, shared):
    """A kernel: both sides quantized on the Vector Engine; with ``shared``, scales of both in one tile."""

    @nki.jit
    def kernel(stationary, moving):
        partitions = stationary.shape[0]
        m, n = stationary.shape[1] // 4, moving.shape[1] // 4
        sides = []
        both = nl.ndarray((partitions, max(m, n)), nl.uint8, buffer=nl.sbuf)
        for number, (data, columns) in enumerate(((stationary, m), (moving, n))):
            tile = nl.ndarray(data.shape, source, buffer=nl.sbuf)
            nisa.dma_copy(tile, data)
            quantized = nl.ndarray((partitions, columns), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
            if shared:
                scale = both[4 * number :, :columns]
            else:
                scale = nl.ndarray((partitions, columns), nl.float8_e8m0fnu, buffer=nl.sbuf)
            nisa.quantize_mx(dst=quantized, src=tile, dst_scale=scale)
            sides.append((quantized, scale))
        (left, left_scale), (right, right_scale) = sides
        psum = nl.ndarray((m, n), nl.bfloat16, buffer=nl.psum)
        nisa.nc_matmul_mx(
            dst=psum, stationary=left, moving=right, stationary_scale=left_scale, moving_scale=right_scale
        )
        out = nl.ndarray((m, n), nl.bfloat16, buffer=nl.shared_hbm)
        copied = nl.ndarray((m, n), nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(copied, psum)
        nisa.dma_copy(out, copied)
        return out

    return kernel


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("partitions", [64, 128])
def test_quantize_then_multiply(shared, partitions):
    rng = np.random.default_rng(partitions)
    left = rng.standard_normal((partitions, 4 * 16)).astype(ml_dtypes.bfloat16)
    right = rng.standard_normal((partitions, 4 * 24)).astype(ml_dtypes.bfloat16)
    out = nki.simulate(quantized_product(nl.bfloat16, shared))(left, right).astype(np.float32)
    exact = np.einsum(
        "kiq,kjq->ij",
        left.astype(np.float32).reshape(partitions, 16, 4),
        right.astype(np.float32).reshape(partitions, 24, 4),
    )
    error = np.abs(out - exact)
    deviation = 0.04 * np.sqrt(4 * partitions)  # of a sum whose terms are rounded to 4 significant bits twice
    assert deviation / 4 < error.mean() < deviation
    assert error.max() < 4 * deviation


def test_refused_on_trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    data = np.zeros((32, 8), ml_dtypes.bfloat16)
    with pytest.raises(ConstraintFault, match="quantize_mx does not exist on this generation"):
        nki.simulate(quantized_product(nl.bfloat16, False))(data, data)


def test_packed_numbers_cannot_be_computed_with():
    @nki.jit
    def kernel(data):
        tile = nl.ndarray((32, 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        nisa.dma_copy(tile, data.view(nl.float8_e4m3fn_x4))
        nisa.tensor_tensor(tile, tile, tile, nl.add)
        return data

    with pytest.raises(ConstraintFault, match="packed"):
        nki.simulate(kernel)(np.zeros((32, 4), np.uint32))


def test_packed_dtypes_are_not_converted_by_a_copy():
    @nki.jit
    def kernel(data):
        tile = nl.ndarray((32, 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        nisa.dma_copy(tile, data.view(nl.float8_e4m3fn_x4))
        other = nl.ndarray((32, 4), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(other, tile)
        return data

    with pytest.raises(ConstraintFault, match="packed"):
        nki.simulate(kernel)(np.zeros((32, 4), np.uint32))


def test_arrays_of_a_packed_dtype_are_packed_tensors():
    from isa.dtypes import float8_e4m3fn_x4, labelled

    @nki.jit
    def kernel(data):
        assert data.dtype == nl.float8_e4m3fn_x4
        out = nl.ndarray(data.shape, nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(out.view(data.dtype), data)
        return out

    bits = np.arange(64, dtype=np.uint32).reshape(4, 16)
    data = np.zeros((4, 16), labelled(float8_e4m3fn_x4))
    data[...] = bits
    np.testing.assert_array_equal(nki.simulate(kernel)(data), bits)
    np.testing.assert_array_equal(nki.simulate(kernel)(data[:, ::2]), bits[:, ::2])
