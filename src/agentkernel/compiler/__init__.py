"""The compiler coder: captured PyTorch graphs to readable, standalone Triton.

A captured graph is rewritten by exact algebra (`rewrite`), lowered to the IR (`ir`, `lowering`),
split into fused regions (`axes`, `fusion`) and written as kernels (`kernel`, `rows_reductions`,
`rows_sweeps`, `products`, `attention`) inside one file (`drop_in`). `lift` takes the other way:
it turns the kernels that TorchInductor generates for the graph into a file that stands alone.
"""
