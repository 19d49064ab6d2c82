"""The summary of a profile under the field names of AWS's profilers.

Names, units (seconds, bytes) and definitions follow the profile schema reference of Neuron Explorer; what is called a
percentage is a fraction of 1, as ``neuron-profile`` prints it.  A field is there only where the model knows its value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from isa.engine import Engine
from isa.work import WorkKind
from perf_model.counters import is_transpose

if TYPE_CHECKING:
    from perf_model.profile import Profile

__all__ = ["as_json", "as_tables", "as_text", "summarize"]

_ENGINES = {"Tensor": "tensor", "Vector": "vector", "Scalar": "scalar", "GpSimd": "gpsimd", "Sync": "sync"}


def summarize(profile: Profile) -> dict[str, Any]:
    """The summary; fields in alphabetical order, as AWS's tool prints them."""
    counters = profile.counters
    total = profile.total_ns * 1e-9
    bandwidth = 1e9 * profile.rates.value("hbm.core_gb_s")
    intensity = counters.peak_flops_per_s / bandwidth
    useful = counters.model_flops / counters.hbm_bytes / intensity if counters.hbm_bytes else 0.0
    transfers = sum(queue.transfers for queue in profile.queues)
    moved = sum(queue.transferred_bytes for queue in profile.queues)
    fields: dict[str, Any] = {
        "dma_active_time": profile.dma_active_ns * 1e-9,
        "dma_active_time_percent": _share(profile.dma_active_ns, profile.total_ns),
        "dma_queue_count": len(profile.queues),
        "dma_transfer_average_bytes": moved / transfers if transfers else 0.0,
        "dma_transfer_count": transfers,
        "dma_transfer_total_bytes": moved,
        "hardware_flops": counters.hardware_flops,
        "hbm_read_bytes": counters.hbm_read_bytes,
        "hbm_write_bytes": counters.hbm_write_bytes,
        "hfu_estimated_percent": profile.hfu_percent / 100,
        "matmul_instruction_count": _matmuls(profile),
        "mbu_estimated_percent": profile.hbm_percent / 100,
        "mfu_estimated_percent": profile.mfu_percent / 100,
        "mfu_max_achievable_estimated_percent": min(useful, 1.0),
        "model_flops": counters.model_flops,
        "mm_arithmetic_intensity": counters.model_flops / counters.hbm_bytes if counters.hbm_bytes else 0.0,
        "nc_idx": 0,
        "nd_idx": 0,
        "peak_flops_bandwidth_ratio": intensity,
        "psum_read_bytes": counters.psum_read_bytes,
        "psum_write_bytes": counters.psum_write_bytes,
        "sbuf_read_bytes": counters.sbuf_read_bytes,
        "sbuf_write_bytes": counters.sbuf_write_bytes,
        "spill_reload_bytes": 0,  # nothing is spilled: tiles without room live behind SBUF, and are not moved
        "spill_save_bytes": 0,
        "total_active_time": total,
        "total_active_time_percent": 1.0 if total else 0.0,
        "total_exec_time": total,
        "total_time": total,
        "transpose_flops": counters.transpose_flops,
    }
    for engine in profile.engines:
        name = _ENGINES[engine.engine.split()[0]]
        fields[f"{name}_engine_active_time"] = engine.active_ns * 1e-9
        fields[f"{name}_engine_active_time_percent"] = engine.active_percent / 100
        fields[f"{name}_engine_instruction_count"] = engine.instructions
    return dict(sorted(fields.items()))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _matmuls(profile: Profile) -> int:
    templates = profile.program.templates
    chosen = profile.program.rows()[:, 0]
    wanted = [
        number
        for number, template in enumerate(templates)
        if template.engine is Engine.tensor
        and template.work.kind is not WorkKind.CONTROL
        and not is_transpose(template)
    ]
    return int(sum((chosen == number).sum() for number in wanted))


def as_tables(summary: dict[str, Any]) -> str:
    """As ``--output-format json`` prints it, of whose tables there is the summary alone."""
    return json.dumps({"summary": [summary]}, indent=1)


def as_json(summary: dict[str, Any]) -> str:
    """As ``--output-format summary-json`` prints it: the summary under the name of its one worker."""
    return json.dumps({"n0_nc0": summary}, indent=1)


def as_text(summary: dict[str, Any]) -> str:
    """As ``--output-format summary-text`` prints it: a name and a value per line."""
    width = max(map(len, summary))
    return "\n".join(f"{name:<{width}}  {value:.9g}" for name, value in summary.items())
