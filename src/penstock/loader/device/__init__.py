"""Bring batches to a GPU while the model computes.

`gpu` is all that is asked of CUDA. `pins` page-locks memory where it is, `staging` is for memory
that is not. `transfer` moves batches, or leaves them in page-locked memory; `lending` gives slots
back once the GPU has read them.
"""
