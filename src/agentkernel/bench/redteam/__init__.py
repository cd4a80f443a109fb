"""The judge measured on a corpus of hostile and honest candidates."""
