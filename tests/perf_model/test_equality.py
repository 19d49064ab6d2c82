"""The compiled schedule equals the readable one to the picosecond, on random streams.

Small times make ties frequent: instructions that become ready, transfers that end, ports that free at one time.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.faults import InternalFault
from perf_model.analysis import critical_path, slack_ps
from perf_model.cost import ONE
from perf_model.schedule import schedule, simulate
from perf_model.stream import AGENTS as PER_CORE
from perf_model.stream import QUEUE, STORE_QUEUE, Column, Stream, join
from tests.perf_model.script import assert_equal

AGENTS = (1, 2, 3, 5, 6, QUEUE + 2, QUEUE + 3, QUEUE + 6, STORE_QUEUE + 2, STORE_QUEUE + 6)
WHOLE = 0xFFFF


def random_row(rng, small):
    """A row of the table, with times of a few picoseconds or of hundreds."""
    agent = int(rng.choice(AGENTS))
    row = [0] * len(Column)

    def some(limit):
        return int(rng.integers(1, 6 if small else limit))

    row[Column.AGENT] = agent
    row[Column.INTERVAL], row[Column.LATENCY] = some(50), some(120)
    row[Column.SEMAPHORE], row[Column.SAME_ENGINE] = int(rng.integers(0, 30)), int(rng.integers(0, 30))
    if agent == 1:
        row[Column.LOAD] = some(40)
        row[Column.LOAD_LATENCY] = row[Column.LOAD] + int(rng.integers(0, 30))
        row[Column.TILES], row[Column.TILE_ISSUE] = int(rng.choice([WHOLE, 0xFF, 0xFF00, 0x3333])), some(5)
    if agent == 2:
        row[Column.TABLE], row[Column.TABLE_LOAD] = int(rng.integers(0, 3)), 200
    if agent in (2, 3, 5):
        row[Column.EXCLUSION] = int(rng.integers(0, 4))
    if agent >= QUEUE:
        row[Column.BEGIN], row[Column.SERVICE], row[Column.COMPLETION] = some(200), some(300), int(rng.integers(0, 60))
        row[Column.WIDTH] = int(rng.choice([ONE, ONE // 16, ONE // 2, ONE * 9 // 17]))
        row[Column.HBM_SHARE] = int(rng.choice([0, ONE // 3, ONE, ONE * 6 // 5]))
    return row


def random_stream(seed, length, depth=4):
    rng = np.random.default_rng(seed)
    table = [random_row(rng, rng.random() < 0.3) for _ in range(24)]
    start, producers, kinds = [0], [], []
    for index in range(length):
        reach = rng.integers(1, 40, rng.integers(0, 4))
        chosen = sorted({index - int(back) for back in reach if back <= index})
        producers += chosen
        kinds += rng.integers(0, 4, len(chosen)).tolist()
        start.append(len(producers))
    return Stream(
        template=rng.integers(0, len(table), length).astype(np.int32),
        table=np.array(table, np.int64),
        start=np.array(start, np.int32),
        producer=np.array(producers, np.int32),
        kind=np.array(kinds, np.int8),
        queue_depth=depth,
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(0, 250), depth=st.integers(1, 8))
def test_compiled_equals_readable(seed, length, depth):
    stream = random_stream(seed, length, depth)
    assert_equal(schedule(stream), simulate(stream))


def random_cores(seed, cores, length, depth):
    """Streams of cores that meet now and then, each time at an instruction of every core or of some."""
    rng = np.random.default_rng(seed)
    streams = [random_stream(seed + core, int(rng.integers(1, length + 1)), depth) for core in range(cores)]
    at, meetings = [0] * cores, []
    while True:
        members = sorted(rng.permutation(cores)[: rng.integers(1, cores + 1)].tolist())
        for core in members:
            at[core] += int(rng.integers(1, 20))
        if any(at[core] > len(streams[core]) for core in members):
            return streams, meetings
        meetings.append([(core, at[core] - 1) for core in members])


def in_order(streams, meetings):
    """Meetings without those that random edges put into a circle: an engine has to come to one before the next."""
    kept = []
    for meeting in meetings:
        try:
            simulate(join(streams, [*kept, meeting]))
        except InternalFault:
            continue
        kept.append(meeting)
    return kept


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), cores=st.integers(2, 4), depth=st.integers(1, 8))
def test_compiled_equals_readable_on_several_cores(seed, cores, depth):
    streams, meetings = random_cores(seed, cores, 60, depth)
    meetings = in_order(streams, meetings)
    joined = join(streams, meetings)
    result = schedule(joined)
    assert_equal(result, simulate(joined))
    first = np.cumsum([0, *map(len, streams)])
    met = np.zeros(len(joined), bool)
    for meeting in meetings:
        places = [first[core] + index for core, index in meeting]
        assert (result.start[places] >= (result.start - result.waited)[places].max()).all()
        met[places] = True
    assert not result.waited[~met].any()
    assert (joined.agent() // PER_CORE == np.repeat(np.arange(cores), np.diff(first))).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), cores=st.integers(2, 4))
def test_cores_that_do_not_meet_do_not_touch(seed, cores):
    streams = [random_stream(seed + core, 100) for core in range(cores)]
    result = schedule(join(streams, []))
    first = 0
    for stream in streams:
        alone = schedule(stream)
        part = slice(first, first + len(stream))
        for name in ("start", "begin", "finish", "end", "bound", "waited"):
            np.testing.assert_array_equal(getattr(result, name)[part], getattr(alone, name), err_msg=name)
        first += len(stream)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), depth=st.integers(1, 8))
def test_schedules_keep_every_promise(seed, depth):
    """Order on engines, producers before consumers, ports held by one, queues no deeper than they are."""
    stream = random_stream(seed, 300, depth)
    result, agent, rows = schedule(stream), stream.agent(), stream.table[stream.template]
    assert (result.begin >= result.start).all()
    assert (result.finish >= result.begin).all()
    for one in set(agent.tolist()):
        mine = np.flatnonzero(agent == one)
        assert (np.diff(result.start[mine]) >= 0).all()
        if one >= QUEUE:
            assert (np.diff(result.begin[mine]) >= 0).all()
            held = np.searchsorted(np.sort(result.finish[mine]), result.start[mine], side="right")
            assert (np.arange(len(mine)) - held < depth).all()
    for port in (1, 2):
        users = np.flatnonzero(rows[:, Column.EXCLUSION] & port)
        users = users[np.argsort(result.start[users], kind="stable")]
        assert (result.start[users[1:]] >= result.finish[users[:-1]]).all()
    for index in range(len(stream)):
        for edge in range(stream.start[index], stream.start[index + 1]):
            producer, kind = stream.producer[edge], stream.kind[edge]
            same = agent[producer] == agent[index] and agent[index] < QUEUE
            if not same or (agent[index] != 1 and kind not in (1, 2)):
                assert result.start[index] >= result.end[producer]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), depth=st.integers(1, 8))
def test_the_critical_path_explains_the_whole_time(seed, depth):
    stream = random_stream(seed, 300, depth)
    result = schedule(stream)
    path, slack = critical_path(stream, result), slack_ps(stream, result)
    assert path.weight_ps.sum() == path.parts_ps.sum() == result.total_ps
    assert (path.weight_ps >= 0).all()
    assert (slack >= 0).all()
    # A transfer whose data waited for the queue could have been triggered later; everything else on the path could not.
    waited = result.data_by[path.instructions] >= 0
    assert not slack[path.instructions][~waited].any()
