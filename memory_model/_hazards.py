"""The pass behind :mod:`memory_model.hazards`, compiled with numba.

State is kept for blocks of 16 granules (64 bytes on-chip): a block is uniform while all its granules have the same last
writer and the same readers since, which is the rule for tiles; an access to part of a block makes it mixed, and then
each granule has its own state.  A whole write makes it uniform again.

Readers since the last write are a persistent linked list: a node is (instruction, next node), and granules with equal
histories share their list.  Within one access, equal states are handled once and then copied.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

RAW, WAR, WAW, EXPLICIT = 0, 1, 2, 3
HBM, SBUF, PSUM, REGISTER = 0, 1, 2, 3
SCALAR, VECTOR = 1, 2
SEARCH = 8  # depth to which a list of readers is searched for an earlier one on the same engine


@njit(cache=True, inline="always")
def _length(header):
    """Words of a pattern, from its header."""
    return 4 + 2 * (header >> 8 & 7) + (2 if header >> 19 & 3 else 0)


@njit(cache=True)
def _reach(words, at, itemsize, dynamic):
    """First byte and one past the last byte of a pattern, as if it were one run; with the run-time part of its address
    where ``dynamic``."""
    header = words[at]
    low = words[at + 2] | np.int64(words[at + 3]) << 31
    high = low + itemsize
    pairs = header >> 8 & 7
    kind = header >> 19 & 3
    for i in range(pairs):
        stride, count = np.int64(words[at + 4 + 2 * i]), np.int64(words[at + 5 + 2 * i])
        if count == 0:
            return low, low
        if kind == VECTOR and i == 0:
            continue  # the index replaces the outermost stride
        if stride < 0:
            low += stride * (count - 1) * itemsize
        else:
            high += stride * (count - 1) * itemsize
    if kind and dynamic:
        stride, count = np.int64(words[at + 4 + 2 * pairs]), np.int64(words[at + 5 + 2 * pairs])
        if stride < 0:
            low += stride * (count - 1) * itemsize
        else:
            high += stride * (count - 1) * itemsize
    return low, high


@njit(cache=True)
def survey(rows, words, templates, itemsizes):
    """What the pass needs to know before it starts.

    Returns:
        flags: per HBM buffer, 1 where some instruction writes it.
        static: per buffer, one past the last byte reached without run-time parts.
        reach: per buffer, the same with run-time parts.
        registers: number of registers.
        chip: by space, one past the last byte reached in a partition of SBUF and PSUM, with run-time parts.
    """
    buffers = registers = 0
    chip = np.zeros(4, np.int64)
    for i in range(len(rows)):
        at = rows[i, 2]
        for _ in range(templates[rows[i, 0], 0]):
            header = words[at]
            if header & 3 == HBM:
                buffers = max(buffers, words[at + 1] + 1)
            elif header & 3 == REGISTER:
                registers = max(registers, words[at + 1] + 1)
            else:
                itemsize = itemsizes[header >> 2 & 0x3F]
                chip[header & 3] = max(chip[header & 3], _reach(words, at, itemsize, True)[1])
            at += _length(header)
    flags = np.zeros(buffers, np.int8)
    static = np.zeros(buffers, np.int64)
    reach = np.zeros(buffers, np.int64)
    for i in range(len(rows)):
        at = rows[i, 2]
        writes = templates[rows[i, 0], 2]
        for k in range(templates[rows[i, 0], 0]):
            header = words[at]
            if header & 3 == HBM:
                number = words[at + 1]
                itemsize = itemsizes[header >> 2 & 0x3F]
                static[number] = max(static[number], _reach(words, at, itemsize, False)[1])
                reach[number] = max(reach[number], _reach(words, at, itemsize, True)[1])
                if writes >> k & 1:
                    flags[number] = 1
            at += _length(header)
    return flags, static, reach, registers, chip


@njit(cache=True)
def _runs(words, at, itemsize, shift, limit, loops, runs):
    """The granules of a pattern within one partition (or HBM buffer) as inclusive ranges.

    Neighbouring elements join into one range as long as no whole granule lies between them, so the result is exact at
    granules.  Bytes outside 0 to ``limit`` are cut off: they cannot be in a program that ran.

    Args:
        loops: scratch, int64[8, 2].
        runs: scratch for the result, int64[m, 2]; replaced by a longer one where needed.
    """
    header = words[at]
    pairs = header >> 8 & 7
    low = words[at + 2] | np.int64(words[at + 3]) << 31
    if header >> 19 & 3:
        low, high = _reach(words, at, itemsize, True)
        low, high = max(low, 0), min(high, limit)
        if low >= high:
            return 0, runs
        runs[0, 0], runs[0, 1] = low >> shift, (high - 1) >> shift
        return 1, runs
    depth = 0
    for i in range(pairs):
        stride, count = np.int64(words[at + 4 + 2 * i]) * itemsize, np.int64(words[at + 5 + 2 * i])
        if count == 0:
            return 0, runs
        if count == 1 or stride == 0:
            continue
        if stride < 0:
            low += stride * (count - 1)
            stride = -stride
        j = depth
        while j > 0 and loops[j - 1, 0] > stride:  # smallest stride first: the order of elements does not matter
            loops[j, 0], loops[j, 1] = loops[j - 1, 0], loops[j - 1, 1]
            j -= 1
        loops[j, 0], loops[j, 1] = stride, count
        depth += 1
    run = np.int64(itemsize)
    first = 0
    while first < depth and loops[first, 0] - run < (1 << shift):
        run += loops[first, 0] * (loops[first, 1] - 1)
        first += 1
    total = np.int64(1)
    for j in range(first, depth):
        total *= loops[j, 1]
    if total > len(runs):
        runs = np.empty((2 * total, 2), np.int64)
    found = 0
    for number in range(total):
        rest = number
        offset = low
        for j in range(first, depth):
            offset += rest % loops[j, 1] * loops[j, 0]
            rest //= loops[j, 1]
        begin, end = max(offset, 0), min(offset + run, limit)
        if begin >= end:
            continue
        begin, end = begin >> shift, (end - 1) >> shift
        if found and runs[found - 1, 0] <= begin <= runs[found - 1, 1] + 1:
            runs[found - 1, 1] = max(runs[found - 1, 1], end)
        else:
            runs[found, 0], runs[found, 1] = begin, end
            found += 1
    return found, runs


@njit(cache=True)
def _emit(producer, kind, place, first, m, p, reason):
    """Add the edge to ``p`` unless this consumer has it; the smaller reason stays.  Returns the number of edges."""
    at = place[p]
    if first <= at < m and producer[at] == p:
        kind[at] = min(kind[at], reason)
        return m
    producer[m] = p
    kind[m] = reason
    place[p] = m
    return m + 1


@njit(cache=True)
def _read(node_of, node_next, nodes, engine, head, i, ordered):
    """The list of readers ``head`` with reader ``i`` in front; an earlier one on the same in-order engine goes.

    Returns the new head and the number of nodes."""
    if head >= 0 and node_of[head] == i:
        return head, nodes
    depth = -1
    if ordered:
        x = head
        for d in range(SEARCH):
            if x < 0:
                break
            if engine[node_of[x]] == engine[i]:
                depth = d
                break
            x = node_next[x]
    new = tail = nodes
    node_of[new] = i
    nodes += 1
    if depth < 0:
        node_next[new] = head
        return new, nodes
    x = head
    for _ in range(depth):
        node_of[nodes] = node_of[x]
        node_next[tail] = nodes
        tail = nodes
        nodes += 1
        x = node_next[x]
    node_next[tail] = node_next[x]
    return new, nodes


@njit(cache=True)
def _double(array):
    grown = np.empty(2 * len(array), array.dtype)
    grown[: len(array)] = array
    return grown


@njit(cache=True)
def _same(words, a, b, length):
    for k in range(length):  # noqa: SIM110 (numba compiles no generator)
        if words[a + k] != words[b + k]:
            return False
    return True


@njit(cache=True)
def _touch(
    i,
    writing,
    runs,
    count,
    origin,
    pitch,
    first_quadrant,
    last_quadrant,
    first_partition,
    last_partition,
    step,
    engine,
    in_order,
    mixed,
    block_writer,
    block_readers,
    writer,
    readers,
    node_of,
    node_next,
    nodes,
    producer,
    kind,
    place,
    first,
    m,
):
    """One access of instruction ``i``: add its edges and update the state of the granules in ``runs``, in each
    quadrant.  There is room for every node and edge.

    Equal states (writer, readers) are handled once: neighbours share their history.
    Returns the number of edges and of nodes.
    """
    e = engine[i]
    ordered = in_order[e]
    seen_writer, seen_readers = -2, -2
    new_readers = -1
    for quadrant in range(first_quadrant, last_quadrant + 1):
        if step > 32:
            ahead = max(32 * quadrant - first_partition + step - 1, 0) // step * step
            if first_partition + ahead > min(last_partition, 32 * quadrant + 31):
                continue
        for r in range(count):
            begin = origin + quadrant * pitch + runs[r, 0]
            stop = origin + quadrant * pitch + runs[r, 1] + 1
            uniform, uniform_writer, uniform_readers = False, -1, -1
            g = begin
            while g < stop:
                b = g >> 4
                whole = False
                if mixed[b]:
                    w, h = writer[g], readers[g]
                else:
                    w, h = block_writer[b], block_readers[b]
                    if g & 15 == 0 and g + 16 <= stop:
                        whole = True
                    else:
                        mixed[b] = 1
                        for x in range(b << 4, (b << 4) + 16):
                            writer[x], readers[x] = w, h
                if w != seen_writer or h != seen_readers:
                    seen_writer, seen_readers = w, h
                    if not writing:
                        if w >= 0:
                            m = _emit(producer, kind, place, first, m, w, RAW)
                        new_readers, nodes = _read(node_of, node_next, nodes, engine, h, i, ordered)
                    elif h >= 0:
                        m = _after_readers(producer, kind, place, first, m, node_of, node_next, h, engine, in_order, i)
                    elif w >= 0 and w != i and not (ordered and engine[w] == e):
                        m = _emit(producer, kind, place, first, m, w, WAW)
                if whole:
                    if writing:
                        block_writer[b] = i
                        block_readers[b] = -1
                    else:
                        block_readers[b] = new_readers
                    g += 16
                    continue
                if g & 15 == 0:
                    uniform, uniform_writer, uniform_readers = True, w, new_readers
                elif w != uniform_writer or new_readers != uniform_readers:
                    uniform = False
                if writing:
                    writer[g], readers[g] = i, -1
                    if g & 15 == 15 and g - 15 >= begin:
                        mixed[b] = 0
                        block_writer[b], block_readers[b] = i, -1
                else:
                    readers[g] = new_readers
                    if g & 15 == 15 and uniform and g - 15 >= begin:
                        mixed[b] = 0
                        block_writer[b], block_readers[b] = w, new_readers
                g += 1
    return m, nodes


@njit(cache=True)
def _after_readers(producer, kind, place, first, m, node_of, node_next, head, engine, in_order, i):
    """WAR edges of ``i`` to a list of readers: of each in-order engine the latest, of its own none."""
    e = engine[i]
    engines_seen = 1 << e if in_order[e] else 0
    x = head
    while x >= 0:
        reader = node_of[x]
        bit = 1 << engine[reader] if in_order[engine[reader]] else 0
        if reader != i and not engines_seen & bit:
            m = _emit(producer, kind, place, first, m, reader, WAR)
        engines_seen |= bit
        x = node_next[x]
    return m


@njit(cache=True)
def scan(rows, words, templates, itemsizes, in_order, explicit, base, size, shift, sbuf_bytes, psum_bytes, granules):
    """Edges of a program.

    Args:
        rows, words: int32, as in :class:`isa.program.Program`.
        templates: int64[t, 4]: operands, read mask, write mask, engine.
        itemsizes: int64 by dtype code.
        in_order: int8 by engine: 1 where the engine completes its instructions in order.
        explicit: int32[k, 2], (consumer, producer), sorted by consumer.
        base: int64: first granule of SBUF, PSUM, registers, HBM buffers (-1: untracked); multiples of 16.
        size: int64: bytes of each HBM buffer.
        shift: log2 of the HBM granule.
        granules: number of granules in all.

    Returns:
        start (int32[n + 1]), producer (int32[m]), kind (int8[m]).
    """
    n = len(rows)
    start = np.empty(n + 1, np.int32)
    producer = np.empty(2 * n + 16, np.int32)
    kind = np.empty(2 * n + 16, np.int8)
    place = np.full(n, -1, np.int32)  # where an instruction stands in ``producer``, if it does for this consumer
    engine = np.empty(n, np.int8)
    node_of = np.empty(2 * n + 64, np.int32)  # nodes: the instruction that read
    node_next = np.empty(2 * n + 64, np.int32)
    nodes = 0
    block_writer = np.full(granules >> 4, -1, np.int32)
    block_readers = np.full(granules >> 4, -1, np.int32)
    mixed = np.zeros(granules >> 4, np.uint8)
    writer = np.empty(granules, np.int32)  # valid in mixed blocks
    readers = np.empty(granules, np.int32)
    loops = np.empty((8, 2), np.int64)
    runs = np.empty((64, 2), np.int64)
    m = 0
    next_explicit = 0
    for i in range(n):
        template = rows[i, 0]
        operands, read_mask, write_mask, e = templates[template]
        engine[i] = e
        start[i] = m
        while m + i + 1 >= len(producer):  # an instruction has at most i producers
            producer, kind = _double(producer), _double(kind)
        for writing in range(2):
            mask = write_mask if writing else read_mask
            at = rows[i, 2]
            last, last_length = -1, -1
            for k in range(operands):
                here = at
                header = words[here]
                length = _length(header)
                at += length
                if not mask >> k & 1:
                    continue
                if length == last_length and _same(words, here, last, length):
                    continue
                last, last_length = here, length
                # --- which granules
                space = header & 3
                place_word = words[here + 1]
                itemsize = itemsizes[header >> 2 & 0x3F]
                first_quadrant = last_quadrant = 0
                first_partition, last_partition, step = 0, 0, 1
                pitch = 0
                if space == HBM:
                    origin = base[3 + place_word]
                    if origin < 0:
                        continue
                    count, runs = _runs(words, here, itemsize, shift, size[place_word], loops, runs)
                elif space == REGISTER:
                    origin = base[2]
                    runs[0, 0] = runs[0, 1] = place_word
                    count = 1
                else:
                    capacity = sbuf_bytes if space == SBUF else psum_bytes
                    origin = base[0] if space == SBUF else base[1]
                    pitch = capacity >> 2
                    count, runs = _runs(words, here, itemsize, 2, capacity, loops, runs)
                    first_partition = place_word & 0xFFFF
                    step = header >> 11 & 0xFF
                    last_partition = first_partition + ((place_word >> 16) - 1) * step
                    first_quadrant, last_quadrant = first_partition >> 5, min(last_partition >> 5, 3)
                # --- their state.  Growth happens here, so that the inner loops keep their arrays in registers.
                cells = np.int64(0)
                for r in range(count):
                    cells += runs[r, 1] - runs[r, 0] + 1
                if not writing:
                    cells *= (SEARCH + 1) * (last_quadrant - first_quadrant + 1)
                    while nodes + cells >= len(node_of):
                        node_of, node_next = _double(node_of), _double(node_next)
                m, nodes = _touch(
                    i,
                    writing == 1,
                    runs,
                    count,
                    origin,
                    pitch,
                    first_quadrant,
                    last_quadrant,
                    first_partition,
                    last_partition,
                    step,
                    engine,
                    in_order,
                    mixed,
                    block_writer,
                    block_readers,
                    writer,
                    readers,
                    node_of,
                    node_next,
                    nodes,
                    producer,
                    kind,
                    place,
                    start[i],
                    m,
                )
        while next_explicit < len(explicit) and explicit[next_explicit, 0] == i:
            m = _emit(producer, kind, place, start[i], m, explicit[next_explicit, 1], EXPLICIT)
            next_explicit += 1
    start[n] = m
    return start, producer[:m].copy(), kind[:m].copy()
