"""What is known? Hardware notes and kernel examples, and the index over them."""
