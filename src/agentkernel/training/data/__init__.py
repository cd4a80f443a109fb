"""Training data: generated modules, judged pairs, teacher reviews, and the rows made of them."""
