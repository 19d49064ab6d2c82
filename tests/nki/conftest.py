"""Kernels under test import ``nki`` as users do."""

import pytest

import trn_sim
from isa.target import TRN2, TRN3
from trn_sim.machine import Core, Options, use_core

trn_sim.activate()


@pytest.fixture
def core():
    """A trn2 core, as if a kernel were running on it."""
    with use_core(Core(Options(target=TRN2))) as core:
        yield core


@pytest.fixture
def core_v4():
    """A trn3 core, as if a kernel were running on it."""
    with use_core(Core(Options(target=TRN3))) as core:
        yield core
