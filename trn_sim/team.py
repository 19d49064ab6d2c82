"""Cores that run one kernel together: one after the other, always in the same order.

Every core has a thread of its own, the first one the caller's, where a debugger and Ctrl-C find it.  But only one of
them runs at a time: a core goes on until it has to wait for another one, or ends; then the next that can go on takes
over, in the order of their numbers.  So a launch gives the same bits and the same instruction streams however the host
schedules threads.  When :meth:`Team.run` is over, whatever happened, its threads are gone.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from isa.faults import DeadlockFault, Fault, UnimplementedFault
from trn_sim._source import user_location

__all__ = ["Team"]

_PATIENCE_S = 0.1
"""Between two looks at whether there is an interruption, or whether a thread has ended.  It decides nothing else."""


class _Cancelled(BaseException):
    """Ends the thread of a core because another one has failed."""


@dataclass(slots=True, eq=False)
class _Meeting:
    """One rendezvous: who has to come, what those who came give, and what everybody has got."""

    what: str
    members: tuple[int, ...]
    givers: dict[int, Callable[[], Any]] = field(default_factory=dict)
    given: dict[int, Any] | None = None


@dataclass(slots=True)
class _Member:
    """State of one core."""

    waits: _Meeting | None = None
    lane: str = ""
    place: tuple[str, int, str] = ("", 0, "")
    ended: bool = False


class Team:
    """The cores of one launch.

    Args:
        titles: what messages call each core, by number.
    """

    def __init__(self, titles: Sequence[str]) -> None:
        self.titles = tuple(titles)
        self._members = [_Member() for _ in titles]
        self._turns = [threading.Semaphore(0) for _ in titles]
        self._meetings: dict[tuple[str, tuple[int, ...]], _Meeting] = {}
        self._error: BaseException | None = None

    @property
    def size(self) -> int:
        """Number of cores."""
        return len(self._members)

    def run(self, bodies: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run one function per core; returns what they return.

        Raises:
            BaseException: the first error of any core; the others are ended.
        """
        results: list[Any] = [None] * self.size

        def core(number: int) -> None:
            try:
                results[number] = bodies[number]()
            except _Cancelled:
                pass
            except BaseException as error:
                self._fail(error, number)
            self._members[number].ended = True

        def thread(number: int) -> None:
            self._await(number)
            if self._error is None:
                core(number)
            self._pass_on(number)

        # numpy's error state and the like are the caller's
        contexts = [contextvars.copy_context() for _ in bodies]
        threads = [
            threading.Thread(target=contexts[number].run, args=(thread, number), name=self.titles[number], daemon=True)
            for number in range(1, self.size)
        ]
        try:
            for one in threads:
                one.start()
            core(0)
            if self._error is None and not all(member.ended for member in self._members):
                self._pass_on(0)
                self._await(0)
        except BaseException as error:  # Ctrl-C while another core had its turn
            self._fail(error, 0)
        finally:
            self._cancel(threads)
        if self._error is not None:
            raise self._error
        return results

    def meet(
        self, number: int, what: str, members: tuple[int, ...], give: Callable[[], Any], *, lane: str = ""
    ) -> dict[int, Any]:
        """Wait until all of ``members`` have come to ``what``, each as often as this one; what each of them gives.

        Args:
            number: who comes.
            what: name of the meeting.
            members: who has to come, ``number`` among them.
            give: called when all have come, before anybody goes on.
            lane: what waits in order on the core, an engine or a pipe; for the verdict where cores meet crosswise.

        Raises:
            DeadlockFault: all cores wait for others, or for one that has ended.
            UnimplementedFault: they wait crosswise, and on the chip another engine might go on.
        """
        if self._error is not None:
            raise _Cancelled
        meeting = self._meetings.setdefault((what, members), _Meeting(what, members))
        meeting.givers[number] = give
        if len(meeting.givers) == len(members):
            del self._meetings[what, members]
            meeting.given = {one: meeting.givers[one]() for one in members}
            return meeting.given
        me = self._members[number]
        me.waits, me.lane, me.place = meeting, lane, user_location(4)
        self._pass_on(number)
        self._await(number)
        me.waits = None
        if self._error is not None or meeting.given is None:
            raise _Cancelled
        return meeting.given

    # --- whose turn it is ---------------------------------------------------------------------------

    def _can_go_on(self, number: int) -> bool:
        member = self._members[number]
        return not member.ended and (member.waits is None or member.waits.given is not None)

    def _pass_on(self, number: int) -> None:
        """Give the turn to the next core that can go on; to the first one when all is over or nothing can go on."""
        following = 0
        if self._error is None:
            order = [(number + step) % self.size for step in range(1, self.size + 1)]
            following = next((one for one in order if self._can_go_on(one)), -1)
            if following < 0:
                following = 0
                if not all(member.ended for member in self._members):
                    self._error = self._verdict()
        self._turns[following].release()

    def _await(self, number: int) -> None:
        """Wait for the turn.  The caller's thread looks up now and then: not every interruption ends a wait."""
        if number:
            self._turns[number].acquire()
            return
        while not self._turns[0].acquire(timeout=_PATIENCE_S):
            pass

    def _fail(self, error: BaseException, number: int) -> None:
        if self._error is None:
            self._error = error
            if isinstance(error, Fault) and self.size > 1:
                error.add_note(f"on {self.titles[number]}")

    def _cancel(self, threads: Sequence[threading.Thread]) -> None:
        """End all threads: those that wait, and those in the middle of the kernel's code, at their next bytecode."""
        if self._error is None and any(not member.ended for member in self._members):
            self._error = _Cancelled()
        for number, thread in enumerate(threads, start=1):
            if thread.ident is None:
                continue
            self._turns[number].release()
            thread.join(_PATIENCE_S)
            while thread.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Cancelled))
                self._turns[number].release()
                thread.join(_PATIENCE_S)

    # --- nobody can go on ---------------------------------------------------------------------------

    def _verdict(self) -> Fault:
        stuck = [(number, member) for number, member in enumerate(self._members) if not member.ended]
        lines = [f"{title} has ended" for title, member in zip(self.titles, self._members, strict=True) if member.ended]
        for number, member in stuck:
            assert member.waits is not None
            missing = [self.titles[one] for one in member.waits.members if one not in member.waits.givers]
            where = f"{member.place[0]}:{member.place[1]}"
            lines.append(f"{self.titles[number]} waits at {member.waits.what} for {' and '.join(missing)} ({where})")
        graph = "the cores wait for each other: " + "; ".join(lines)
        ended = {number for number, member in enumerate(self._members) if member.ended}
        fault: Fault
        if len({member.lane for _, member in stuck}) == 1 or any(
            member.waits is not None and ended & set(member.waits.members) for _, member in stuck
        ):
            fault = DeadlockFault(
                graph,
                limit="every core comes to the same barriers, exchanges and collectives, in the same order",
                advice="let all cores take this path, or leave it to none",
            )
        else:
            fault = UnimplementedFault(
                graph,
                advice="on the chip, engines and pipes that do not wait for each other might go on; trn-sim runs a "
                "core until it waits: bring the calls into the same order on all cores",
            )
        fault.locate(*stuck[0][1].place)
        return fault
