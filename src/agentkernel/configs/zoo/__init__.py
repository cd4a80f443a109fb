"""Which models can be optimised over night without writing a zoo of one's own?"""
