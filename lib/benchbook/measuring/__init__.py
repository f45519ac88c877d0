"""Measure a workload: windows, the loop, calibration, the search, parity with float64."""
