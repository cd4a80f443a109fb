"""Triton's interpreter made as strict as a GPU: bounds, rounding, hints and program order."""
