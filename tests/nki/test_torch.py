"""PyTorch tensors in and out."""

import importlib

import pytest

import trn_sim

trn_sim.activate()

import nki
import nki.isa as nisa
import nki.language as nl

from isa.faults import ConstraintFault

pytestmark = pytest.mark.torch


@pytest.fixture
def torch():
    """Imported when a test runs, so that the file can be collected, and deselected, without torch."""
    return importlib.import_module("torch")


@nki.jit
def double(a):
    tile = nl.load(a)
    out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
    nl.store(out, nl.add(tile, tile))
    return out, a


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_torch_in_torch_out(torch, dtype):
    values = torch.arange(64).reshape(32, 2).to(getattr(torch, dtype))
    result, same = double(values)
    assert result.dtype == values.dtype
    assert torch.equal(result, values + values)
    assert same is values


def test_in_place(torch):
    @nki.jit
    def fill(a):
        nisa.dma_copy(a, nl.ones(a.shape, a.dtype))

    for values in (torch.zeros(32, 8), torch.zeros(8, 32).T, torch.zeros(32, 8, dtype=torch.bfloat16)):
        fill(values)
        assert bool((values == 1).all())


def test_double_precision_is_refused(torch):
    with pytest.raises(ConstraintFault, match="float64"):
        double(torch.zeros(32, 2, dtype=torch.float64))
