"""Kernels under test import ``neuronxcc.nki`` as users do."""

import pytest

import trn_sim
from isa.target import TRN2
from trn_sim.machine import Core, Options, use_core

trn_sim.activate()


@pytest.fixture
def core():
    """A trn2 core, as if a kernel were running on it."""
    from trn_sim.neuronxcc.nki._tile import discard

    with use_core(Core(Options(target=TRN2))) as core:
        yield core
        discard()
