"""Does the judge catch every trick of a corpus, and let the honest ones pass?"""
