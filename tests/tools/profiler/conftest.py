"""Shared by the profiler's tests: a GPU that only exists in numbers (`simulated_gpu`)."""
