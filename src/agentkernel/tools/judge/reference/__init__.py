"""The reference of a judgement: eager PyTorch, its fp64 oracle and its rounding population."""
