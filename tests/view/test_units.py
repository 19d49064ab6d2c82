"""Numbers with units."""

import pytest

from trn_sim.view.units import bytes_text, count_text, duration, plural


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (640, "640 ns"),
        (1.25, "1.25 ns"),
        (999.9, "1.00 us"),
        (1000, "1.00 us"),
        (12345, "12.3 us"),
        (345678, "346 us"),
        (3.21e6, "3.21 ms"),
        (5e12, "5000 s"),
    ],
)
def test_duration(ns, text):
    assert duration(ns) == text


def test_others():
    assert bytes_text(512) == "512 B"
    assert bytes_text(24 * 2**20) == "24.0 MiB"
    assert count_text(96) == "96"
    assert count_text(17_179_869_184) == "17.2 G"
    assert plural(1, "transfer") == "1 transfer"
    assert plural(0, "transfer") == "0 transfers"
    assert plural(2048, "transfer") == "2,048 transfers"
