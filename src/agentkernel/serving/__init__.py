"""The judge and the profiler over HTTP, for reinforcement learning elsewhere."""
