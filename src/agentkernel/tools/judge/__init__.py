"""Correctness of a candidate: policy, cases, reference, comparison, proof of execution.

The reference, the oracle, the seeds and the verdict stay in this process; the candidate runs in
a sandboxed worker.
"""
