"""The profile of a real kernel run as text, as data and as a time line."""

import json
from itertools import pairwise

import numpy as np
import pytest

import trn_sim
from trn_sim.view.profile_report import ROWS, ProfileReport
from trn_sim.view.report import dump_json
from trn_sim.view.timeline import timeline

trn_sim.activate()

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matmul(left, right):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    psum = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, left.shape[0], 128):
        a = nl.ndarray((128, 128), dtype=left.dtype, buffer=nl.sbuf)
        b = nl.ndarray((128, 512), dtype=right.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=left[k : k + 128, :])
        nisa.dma_copy(dst=b, src=right[k : k + 128, :])
        nisa.nc_matmul(dst=psum, stationary=a, moving=b, name="product")
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def copy(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=a)
    return out


@pytest.fixture(scope="module")
def profile():
    left, right = np.ones((512, 128), np.float32), np.ones((512, 512), np.float32)
    return trn_sim.nki.kernel.run(matmul, left, right, target="trn2").profile


def test_text_shows_what_the_data_say(profile):
    report = ProfileReport("matmul", profile.as_dict())
    text = report.text()
    lines = text.splitlines()
    assert lines[0] == "matmul on trn2, NeuronCore-v3"
    summary = report.json()["summary"]
    assert f"{summary['mfu_estimated_percent']:.1f} % of" in text
    assert "float32" in text
    (row,) = [row for row in report.json()["engines"] if row["engine"] == "Tensor"]
    (line,) = [line for line in lines if line.startswith("Tensor  ")]
    assert f"{row['active_percent']:.1f} %" in line
    assert "4 instructions" in line
    assert "nisa.nc_matmul(dst=psum" in text
    assert any(line.split()[:3] == ["dma_copy", "DMA", "9"] for line in lines)
    assert max(map(len, lines)) <= 100
    assert text == report.text()


def test_width_and_colour(profile):
    report = ProfileReport("matmul", profile.as_dict())
    assert "\x1b[" not in report.text(width=80)
    assert "\x1b[" in report.text(color=True)
    assert max(map(len, report.text(width=80).splitlines())) <= 80


def test_data_is_strict_json(profile):
    report = ProfileReport("matmul", profile.as_dict())
    assert json.loads(dump_json(report.json())) == report.json()


def test_a_kernel_without_matmuls():
    run = trn_sim.nki.kernel.run(copy, np.ones((128, 64), np.float32), target="trn2")
    text = ProfileReport("copy", run.profile.as_dict()).text()
    assert "none: no matrix multiplication" in text


def test_long_tables_are_cut(profile):
    data = profile.as_dict()
    data["source_lines"] = data["source_lines"] * 5
    text = ProfileReport("matmul", data).text()
    assert f"and {len(data['source_lines']) - ROWS} more, in --json" in text


def test_time_line(profile):
    drawn = timeline("matmul", profile)
    slices = list(drawn.slices)
    assert drawn.process == "matmul on trn2"
    assert set(drawn.tracks) == {piece.track for piece in slices}
    assert {"Tensor", "Vector"} <= set(drawn.tracks)
    assert len(slices) == len(profile.program)
    assert drawn.end_ns == round(profile.total_ns)
    assert max(piece.end_ns for piece in slices) <= drawn.end_ns
    assert [piece.start_ns for piece in slices] == sorted(piece.start_ns for piece in slices)
    places = {}
    for piece in slices:
        places.setdefault((piece.track, piece.lane), []).append(piece)
    for pieces in places.values():
        assert all(before.end_ns <= after.start_ns for before, after in pairwise(pieces))
    products = [piece for piece in slices if piece.name == "product"]
    assert len(products) == 4
    assert products[0].args["source"].startswith("test_profile_report.py:")
    assert {"dst", "stationary", "moving"} <= set(products[0].args)
    transfers = [piece for piece in slices if piece.name == "dma_copy"]
    assert sum(piece.args["bytes"] for piece in transfers) == 4 * (128 * 128 + 128 * 512) * 4 + 128 * 512 * 4
    assert any(piece.args["critical"] for piece in slices)


def test_busy_time_is_the_same_in_the_time_line_and_in_the_profile(profile):
    drawn = timeline("matmul", profile)
    vector = sum(piece.end_ns - piece.start_ns for piece in drawn.slices if piece.track == "Vector")
    (row,) = [row for row in profile.engines if row.engine == "Vector"]
    assert vector == pytest.approx(row.active_ns, abs=1)


def test_bandwidth_counter_adds_up_to_the_bytes(profile):
    (counter,) = timeline("matmul", profile).counters
    assert counter.unit == "GB/s"
    assert counter.points[-1][1] == 0
    moved = sum((after[0] - before[0]) * before[1] for before, after in pairwise(counter.points))
    assert moved == pytest.approx(profile.counters.hbm_bytes, rel=0.02)
