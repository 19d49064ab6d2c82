"""Bandwidth: how transfers in flight share the DMA engines and the HBM of one core.

A fluid model.  Alone, a transfer takes ``service_ps`` and in that time draws a share of all DMA engines (``width``:
less than the whole where it has fewer descriptors than there are engines, or the last round is not full) and a share
of the core's HBM bandwidth (``hbm_share``; above the whole where the DMA engines are faster than HBM).  While the
shares of all transfers in flight sum to more than the whole, all advance slower by the same factor:

    engine factor = min(1, 1 / sum of widths)        HBM factor = min(engine factor, 1 / sum of HBM shares)

Transfers that touch HBM advance with the HBM factor, the others with the engine factor.  Between two changes of the
set the factors are constant, so each kind of transfer has one clock of work done, and a transfer ends when its clock
has advanced by its service.

All in integers: shares and factors in 1/65536, clocks in picoseconds / 65536; the compiled twin in :mod:`_schedule`
does the same arithmetic.

Left out: which of the engines a narrow transfer lands on (they are dealt without collisions), requests in flight to
HBM, read/write turnaround, and other cores of the chip.
"""

from __future__ import annotations

from dataclasses import dataclass

from perf_model.cost import ONE

__all__ = ["Pool", "Transfer"]


@dataclass(slots=True)
class Transfer:
    """A transfer whose data is moving."""

    index: int
    width: int
    hbm_share: int
    target: int  # reading of its clock at which it is done

    @property
    def uses_hbm(self) -> bool:
        """Which of the two clocks drives it."""
        return self.hbm_share > 0


class Pool:
    """The DMA engines and the HBM bandwidth of one core."""

    def __init__(self) -> None:
        self.time_ps = 0
        self.transfers: list[Transfer] = []
        self.clock = {False: 0, True: 0}  # work done, by "uses HBM", ps / 65536
        self.factor = {False: ONE, True: ONE}  # speed of the clock, 1/65536

    def _advance(self, time_ps: int) -> None:
        for kind in (False, True):
            self.clock[kind] += (time_ps - self.time_ps) * self.factor[kind]
        self.time_ps = time_ps

    def _share(self) -> None:
        width = sum(t.width for t in self.transfers)
        hbm = sum(t.hbm_share for t in self.transfers)
        engines = ONE * ONE // width if width > ONE else ONE
        self.factor = {False: engines, True: min(engines, ONE * ONE // hbm) if hbm > ONE else engines}

    def admit(self, index: int, service_ps: int, width: int, hbm_share: int, time_ps: int) -> None:
        """The data of transfer ``index`` begins to move."""
        self._advance(time_ps)
        transfer = Transfer(index, width, hbm_share, 0)
        transfer.target = self.clock[transfer.uses_hbm] + service_ps * ONE
        self.transfers.append(transfer)
        self._share()

    def next_completion(self) -> tuple[int, int] | None:
        """(time in ps, index) of the transfer that ends next if the set stays as it is; None when idle."""
        best: tuple[int, int, int] | None = None
        for t in self.transfers:
            left = max(0, t.target - self.clock[t.uses_hbm])
            done_ps = self.time_ps - (-left // self.factor[t.uses_hbm])
            key = (done_ps, t.target, t.index)
            if best is None or key < best:
                best = key
        return None if best is None else (best[0], best[2])

    def complete(self, index: int, time_ps: int) -> None:
        """Transfer ``index`` has ended."""
        self._advance(time_ps)
        self.transfers = [t for t in self.transfers if t.index != index]
        self._share()
