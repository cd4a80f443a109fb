"""Which words stand for which concept? One file a sort of word."""
