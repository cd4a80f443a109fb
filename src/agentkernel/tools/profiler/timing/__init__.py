"""Timing batches: many calls on fresh inputs, under the clock of the parent."""
