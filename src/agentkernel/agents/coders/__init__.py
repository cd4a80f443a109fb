"""Who drafts? Coders behind one protocol."""
