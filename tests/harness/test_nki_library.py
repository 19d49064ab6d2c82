"""``trn_sim.activate(harness="nki-library")``: the names and calls that suite relies on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trn_sim

ROOT = Path(__file__).parents[2]


def python(code, **environment):
    """Run code in a fresh interpreter; returns its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_simulator_package_holds_our_modules():
    code = """
import trn_sim; trn_sim.activate(harness="nki-library")
import nki_cpu_simulator.nki.builtin
import nki_cpu_simulator.nki.isa.constants as constants
import nki_cpu_simulator.nki.language.dtypes, nki_cpu_simulator.nki.compiler
import nki_cpu_simulator.nki.tensor, nki_cpu_simulator.nki.typing
from nki_cpu_simulator import nki as theirs
import nki, nki.isa, trn_sim.nki
print(theirs is nki is trn_sim.nki, constants is nki.isa.constants)
"""
    assert python(code) == "True True"


def test_without_the_harness_the_names_do_not_exist():
    code = """
from importlib.util import find_spec
import trn_sim; trn_sim.activate()
import nki
print(find_spec("nki_cpu_simulator"), find_spec("neuron_dtypes"), hasattr(nki, "cpu_simulate"))
"""
    assert python(code) == "None None False"


def test_an_unknown_harness_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="nki-library"):
        trn_sim.activate(harness="nki-libary")


KERNEL = """
import numpy as np, trn_sim
trn_sim.activate(harness="nki-library")
import nki, nki.isa as nisa, nki.language as nl
def twice(x, factor=2.0):
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, tile)
    return out
x = np.arange(8, dtype=np.float32).reshape(2, 4)
"""


def test_cpu_simulate_runs_functions_and_kernels_by_keyword():
    code = (
        KERNEL
        + """
print((nki.cpu_simulate(twice)[1](x=x, factor=3.0) == 3 * x).all())
print((nki.cpu_simulate(nki.jit(twice))(x=x) == 2 * x).all())
"""
    )
    assert python(code) == "True\nTrue"


@pytest.mark.parametrize(("generation", "version"), [("gen2", "gen2"), ("trn2", "gen3"), ("gen4", "gen4")])
def test_the_generation_is_the_suites(generation, version):
    code = (
        KERNEL
        + """
def asks(x):
    print(nisa.get_nc_version().name)
    return twice(x)
nki.cpu_simulate(asks)[1](x=x)
"""
    )
    assert python(code, NKI_NC_VERSION=generation) == version


@pytest.mark.parametrize(("environment", "printed"), [({}, "True"), ({"TRN_SIM_UNINITIALIZED": "error"}, "fault")])
def test_fresh_memory_is_nan_unless_asked(environment, printed):
    code = (
        KERNEL
        + """
def half(x):
    tile = nl.ndarray((4, 4), x.dtype)
    nisa.dma_copy(tile[0:2], x)
    out = nl.ndarray((4, 4), x.dtype, nl.shared_hbm)
    nl.store(out, tile)
    return out
try:
    print(np.isnan(nki.cpu_simulate(half)(x=x)[2:]).all())
except trn_sim.KernelFault as fault:
    print("fault")
"""
    )
    assert python(code, **environment) == printed


def test_the_orchestrator_gets_the_attribute_its_simulation_mode_forgets():
    code = (
        KERNEL
        + """
import sys, types
module = types.ModuleType("test.utils.test_orchestrator")
class Orchestrator: pass
module.Orchestrator = Orchestrator
sys.modules[module.__name__] = module
nki.cpu_simulate(twice)[1](x=x)
print(Orchestrator._compiled_kernel)
"""
    )
    assert python(code) == "None"


def test_inputs_by_rank_run_on_all_ranks():
    code = """
import sys, types, numpy as np
class Orchestrator:
    fs_config = types.SimpleNamespace(artifacts_output_directory_path="out")
    def _run_simulator_inference(self, kernel):
        return "alone"
    def __dump_tensors__(self, folder, tensors, name):
        for key, value in tensors.items():
            print(folder, name(key), value.tolist())
class ByRank:
    def __init__(self, make):
        self.for_rank = make
module = types.ModuleType("test.utils.test_orchestrator")
module.Orchestrator, module.INF_ARTIFACT_DIR_NAME = Orchestrator, "inference"
sys.modules[module.__name__] = module
import trn_sim; trn_sim.activate(harness="nki-library")
import nki_cpu_simulator.nki as nki, nki_cpu_simulator.nki.language as nl, nki.collectives as ncc
def total(x, group):
    own = nl.ndarray(x.shape, x.dtype, nl.private_hbm)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(own, nl.load(x))
    ncc.all_reduce([own], [out], group, nl.add)
    return out
group = ncc.ReplicaGroup([[0, 1]])
target = types.SimpleNamespace(get_nc_gen=lambda: "gen3")
def case(ranks):
    return types.SimpleNamespace(
        kernel_func=total, inference_args=types.SimpleNamespace(collective_ranks=ranks),
        kernel_input=ByRank(lambda rank: {"x.must_alias_input": np.full((1, 2), rank + 1, np.float32), "group": group}),
        compiler_input=types.SimpleNamespace(logical_nc_config=1, platform_target=target),
        validation_args=types.SimpleNamespace(golden_output=ByRank(lambda rank: {"out": np.zeros((1, 2))})),
    )
print(Orchestrator()._run_simulator_inference(case(1)))
print(Orchestrator()._run_simulator_inference(case(2)))
"""
    expected = ["out/inference/output_worker_0 out [[3.0, 3.0]]", "out/inference/output_worker_1 out [[3.0, 3.0]]"]
    assert python(code).splitlines() == ["alone", *expected, "out/inference"]


def test_a_front_end_records_the_program():
    code = (
        KERNEL
        + """
from nki.compiler.frontend import ParserFrontend
from nki.compiler.ncc_driver import CompiledKernel, CompileOptions
result = ParserFrontend().compile(twice, inputs={"x": x}, target="trn2", lnc=1, output_names=["out"])
print(len(result.program), result.program.target)
try:
    CompiledKernel.from_frontend(result, CompileOptions(target="trn2").disable_backend_optimizations())
except NotImplementedError as fault:
    print("NEFF" in str(fault))
"""
    )
    assert python(code) == "3 trn2, NeuronCore-v3\nTrue"


def test_annotations_and_casts_of_the_older_package():
    code = """
import trn_sim; trn_sim.activate(harness="nki-library")
import neuronxcc.nki.typing as nt, nki.typing
from neuronxcc.starfish.support.dtype import static_cast
import neuron_dtypes
print(nt.tensor is nki.typing.tensor, static_cast is neuron_dtypes.static_cast)
"""
    assert python(code) == "True True"
