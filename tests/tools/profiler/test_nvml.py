"""NVML's answers are read right, with what went on during a block."""

from __future__ import annotations

import time

from agentkernel.tools.profiler.nvml import GaugeMonitor, Reading, busy_state, reasons_of
from tests.tools.profiler.simulated_gpu import STATE, SimulatedGauge


def test_every_bit_has_its_name_and_an_unknown_one_is_kept() -> None:
    assert reasons_of(0) == ()
    assert reasons_of(0x44) == ("sw_power_cap", "hw_thermal_slowdown")
    assert reasons_of(0x80) == ("hw_power_brake_slowdown",)
    assert reasons_of(0x1001) == ("gpu_idle", "unknown_0x1000")


def test_the_state_under_load_is_that_of_the_readings() -> None:
    readings = [
        Reading(0.0, ("gpu_idle",), 345, 90.0),
        Reading(0.1, ("sw_power_cap",), 1900, 600.0),
        Reading(0.2, (), 1980, 640.0),
    ]
    found = busy_state(STATE, readings)
    assert (found.sm_clock_mhz, found.power_w) == (1900, 600.0)
    assert found.throttle_reasons == ("sw_power_cap",)
    assert found.temperature_c == STATE.temperature_c


def test_without_readings_the_state_stays() -> None:
    assert busy_state(STATE, []) == STATE


class TickingGauge(SimulatedGauge):
    """Readings with the time of the look, as NVML gives them."""

    def read(self) -> Reading:
        return self.reading._replace(time_s=time.monotonic())


def test_a_watch_gives_the_readings_of_a_span_and_stops() -> None:
    with GaugeMonitor(TickingGauge(), period_s=0.001) as watch:
        time.sleep(0.02)
        begin = watch.now()
        time.sleep(0.05)
        end = watch.now()
        time.sleep(0.02)
        found = watch.between(begin, end)
    assert len(found) > 3
    assert all(begin <= item.time_s <= end for item in found)
    kept = len(watch.between(0.0, 1e12))
    time.sleep(0.02)
    assert len(watch.between(0.0, 1e12)) == kept


def test_a_span_too_short_for_a_reading_gets_one_taken_now() -> None:
    watch = GaugeMonitor(TickingGauge())
    assert len(watch.between(1.0, 1.0)) == 1
