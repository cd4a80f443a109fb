"""What are the nouns of this field? Frozen values that every room shares."""
