"""Lanes and the two trace writers, on a small time line whose picture is known."""

import json

import pytest

from trn_sim.view.report import open_whole
from trn_sim.view.timeline import Counter, Slice, Timeline, assign_lanes
from trn_sim.view.trace import GAP_NS, open_trace


def small_timeline():
    return Timeline(
        process="kernel on trn2",
        end_ns=300,
        tracks=["Tensor", "DMA q1"],
        slices=[
            Slice("DMA q1", 0, 0, 120, "dma_copy", {"source": "k.py:3", "bytes": 4096}),
            Slice("DMA q1", 1, 10, 140, "dma_copy", {"source": "k.py:4", "bytes": 2048}),
            Slice("Tensor", 0, 140, 300, "nc_matmul", {"source": "k.py:5", "utilization": 0.5, "first": True}),
        ],
        counters=[Counter("HBM bandwidth", "GB/s", [(0, 51.2), (140, 0.0)])],
    )


def test_lanes_do_not_overlap():
    intervals = [(0, 10), (0, 4), (2, 3), (3, 8), (4, 5), (10, 11)]
    lanes = list(assign_lanes(intervals))
    assert lanes == [0, 1, 2, 2, 1, 0]


def test_chrome_trace(tmp_path):
    path = tmp_path / "trace.json"
    with open_trace(path) as trace:
        trace.add(small_timeline())
        trace.add(small_timeline())
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [(event["pid"], event["ts"], event["dur"]) for event in slices[:3]] == [
        (1, 0.0, 0.12),
        (1, 0.01, 0.13),
        (1, 0.14, 0.16),
    ]
    shift = (300 + GAP_NS) / 1000
    assert [event["ts"] - shift for event in slices[3:]] == pytest.approx([0.0, 0.01, 0.14])
    assert slices[0]["args"] == {"source": "k.py:3", "bytes": 4096}
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1}
    assert sorted(names.values()) == ["DMA q1", "DMA q1 (2)", "Tensor"]
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index" and e["pid"] == 1}
    assert [names[1, tid] for tid in sorted(order, key=order.__getitem__)] == ["Tensor", "DMA q1", "DMA q1 (2)"]
    counters = [event for event in events if event["ph"] == "C" and event["pid"] == 1]
    assert [(event["ts"], event["args"]) for event in counters] == [(0.0, {"GB/s": 51.2}), (0.14, {"GB/s": 0.0})]


def test_perfetto_trace(tmp_path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    path = tmp_path / "trace.pftrace"
    with open_trace(path) as trace:
        trace.add(small_timeline())
    packets = Trace.FromString(path.read_bytes()).packet
    assert len({packet.trusted_packet_sequence_id for packet in packets}) == 1
    assert packets[0].sequence_flags == 1  # a sequence starts with cleared state before anything interned

    described = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
    titles = {uuid: d.thread.thread_name for uuid, d in described.items() if d.HasField("thread")}
    assert sorted(titles.values()) == ["DMA q1", "DMA q1 (2)", "Tensor"]
    (process,) = [d for d in described.values() if d.HasField("process")]
    assert process.process.process_name == "kernel on trn2"
    assert all(d.parent_uuid == process.uuid for d in described.values() if d is not process)
    ranks = {titles[uuid]: described[uuid].sibling_order_rank for uuid in titles}
    assert sorted(ranks, key=ranks.__getitem__) == ["Tensor", "DMA q1", "DMA q1 (2)"]

    names, keys, texts, open_slices, slices = {}, {}, {}, {}, []
    for packet in packets:
        names.update({entry.iid: entry.name for entry in packet.interned_data.event_names})
        keys.update({entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names})
        texts.update({entry.iid: entry.str.decode() for entry in packet.interned_data.debug_annotation_string_values})
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in open_slices
            args = {keys[a.name_iid]: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
            args["source"] = texts[args["source"]]
            open_slices[event.track_uuid] = (packet.timestamp, names[event.name_iid], args)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            start, name, args = open_slices.pop(event.track_uuid)
            slices.append((titles[event.track_uuid], start, packet.timestamp, name, args))
    assert not open_slices
    assert slices == [
        ("DMA q1", 0, 120, "dma_copy", {"source": "k.py:3", "bytes": 4096}),
        ("DMA q1 (2)", 10, 140, "dma_copy", {"source": "k.py:4", "bytes": 2048}),
        ("Tensor", 140, 300, "nc_matmul", {"source": "k.py:5", "utilization": 0.5, "first": True}),
    ]
    (counter,) = [d for d in described.values() if d.HasField("counter")]
    assert (counter.name, counter.counter.unit_name) == ("HBM bandwidth", "GB/s")
    points = [
        (packet.timestamp, packet.track_event.double_counter_value)
        for packet in packets
        if packet.track_event.type == TrackEvent.TYPE_COUNTER
    ]
    assert points == [(0, 51.2), (140, 0.0)]


def test_missing_perfetto_says_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    with pytest.raises(ImportError, match=r"pip install 'trn-sim\[view\]'"), open_trace(tmp_path / "t.pftrace"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["trace.json", "trace.pftrace"])
def test_an_exception_leaves_no_trace_and_the_old_one_in_place(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(RuntimeError), open_trace(path) as trace:
        trace.add(small_timeline())
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_open_whole_shows_nothing_before_the_end(tmp_path):
    path = tmp_path / "report.txt"
    with open_whole(path) as file:
        file.write("half")
        file.flush()
        assert not path.exists()
    assert path.read_text() == "half"
