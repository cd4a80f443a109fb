"""Chat session: one person, one module, and a tree of candidates with a way back from each."""
