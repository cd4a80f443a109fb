"""GPUs, locks and worker processes of this machine."""
