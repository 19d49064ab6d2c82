"""Traces in Perfetto's protobuf format, for https://ui.perfetto.dev: written packet by packet, true nanoseconds.

One process per kernel run and core, one thread track per engine, DMA queue and lane, one counter track per counter.
Names and texts are interned, so that a slice costs some tens of bytes.  Needs the ``view`` extra.

Field numbers and the rules of interning are those of Perfetto's ``TracePacket`` and ``TrackEvent``.
"""

from __future__ import annotations

from typing import IO, Any

from trn_sim.view.timeline import Timeline

__all__ = ["MissingViewExtraError", "PerfettoWriter"]

_SEQUENCE = 1  # the one writer of the trace
_NEEDS_INCREMENTAL_STATE = 2
_INCREMENTAL_STATE_CLEARED = 1


class MissingViewExtraError(ImportError):
    """The package that writes Perfetto's format is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "a Perfetto trace needs the package 'perfetto': pip install 'trn-sim[view]' "
            "(or ask for a file ending in .json: a Chrome trace needs nothing)"
        )


class PerfettoWriter:
    """Appends time lines to one trace."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
            from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
        except ImportError:
            raise MissingViewExtraError from None
        self._builder = StreamingTraceProtoBuilder(file)
        self._event = TrackEvent
        self._descriptor = TrackDescriptor
        self._tracks = 0
        self._processes = 0
        self._names: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        first = self._packet()
        first.sequence_flags = _INCREMENTAL_STATE_CLEARED
        self._builder.write_packet(first)

    def add(self, timeline: Timeline, *, offset_ns: int = 0) -> None:
        """Write one time line, moved by ``offset_ns``."""
        self._processes += 1
        process = self._new_track()
        packet = self._packet()
        packet.track_descriptor.uuid = process
        packet.track_descriptor.process.pid = self._processes
        packet.track_descriptor.process.process_name = timeline.process
        packet.track_descriptor.child_ordering = self._descriptor.EXPLICIT
        self._builder.write_packet(packet)

        tracks: dict[tuple[str, int], int] = {}
        for piece in timeline.slices:
            place = (piece.track, piece.lane)
            track = tracks.get(place)
            if track is None:
                rank = timeline.tracks.index(piece.track)
                track = tracks[place] = self._thread(process, piece.track, piece.lane, rank)
            self._slice(track, piece.start_ns + offset_ns, piece.end_ns + offset_ns, piece.name, piece.args)
        for counter in timeline.counters:
            track = self._new_track()
            packet = self._packet()
            packet.track_descriptor.uuid = track
            packet.track_descriptor.parent_uuid = process
            packet.track_descriptor.name = counter.name
            packet.track_descriptor.counter.unit_name = counter.unit
            self._builder.write_packet(packet)
            for time, value in counter.points:
                packet = self._packet(time + offset_ns)
                packet.track_event.type = self._event.TYPE_COUNTER
                packet.track_event.track_uuid = track
                packet.track_event.double_counter_value = value
                self._builder.write_packet(packet)

    def close(self) -> None:
        """Nothing is left to write."""

    # --- packets ----------------------------------------------------------------------------------

    def _packet(self, timestamp: int | None = None) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if timestamp is not None:
            packet.timestamp = timestamp
            packet.sequence_flags = _NEEDS_INCREMENTAL_STATE
        return packet

    def _new_track(self) -> int:
        self._tracks += 1
        return self._tracks

    def _thread(self, process: int, title: str, lane: int, rank: int) -> int:
        track = self._new_track()
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid = track
        descriptor.parent_uuid = process
        descriptor.sibling_order_rank = rank * 1000 + lane
        descriptor.thread.pid = self._processes
        descriptor.thread.tid = track
        descriptor.thread.thread_name = title if lane == 0 else f"{title} ({lane + 1})"
        self._builder.write_packet(packet)
        return track

    def _slice(self, track: int, start: int, end: int, name: str, args: dict[str, Any]) -> None:
        packet = self._packet(start)
        event = packet.track_event
        event.type = self._event.TYPE_SLICE_BEGIN
        event.track_uuid = track
        event.name_iid = _number(self._names, name, packet.interned_data.event_names, "name")
        for key, value in args.items():
            key_number = _number(self._keys, key, packet.interned_data.debug_annotation_names, "name")
            annotation = event.debug_annotations.add(name_iid=key_number)
            if isinstance(value, bool):
                annotation.bool_value = value
            elif isinstance(value, int):
                annotation.int_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            else:
                texts = packet.interned_data.debug_annotation_string_values
                annotation.string_value_iid = _number(self._texts, str(value), texts, "str")
        self._builder.write_packet(packet)
        packet = self._packet(end)
        packet.track_event.type = self._event.TYPE_SLICE_END
        packet.track_event.track_uuid = track
        self._builder.write_packet(packet)


def _number(known: dict[str, int], text: str, interned: Any, field: str) -> int:
    """The number that stands for ``text``, told to the reader of the trace on first use."""
    number = known.get(text)
    if number is None:
        number = known[text] = len(known) + 1
        entry = interned.add(iid=number)
        setattr(entry, field, text if field == "name" else text.encode())
    return number
