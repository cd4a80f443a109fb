"""Knowledge base: hardware notes, fixes, kernel examples and experiences, with their search."""
