"""How do problems become judged kernels, rows, and a model that was trained on them?"""
