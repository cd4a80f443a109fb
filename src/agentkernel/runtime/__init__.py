"""GPUs, locks, worker processes and HTTP servers of this machine."""
