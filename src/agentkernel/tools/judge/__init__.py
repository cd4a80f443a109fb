"""Is a candidate right? The reference, the oracle, the seeds and the verdict stay on this side."""
