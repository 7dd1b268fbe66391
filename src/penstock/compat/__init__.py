"""Penstock under the names of other libraries, for programs that were written for those.

`pyg_lib` and `sampler` are pyg-lib's modules; `operators` and `walks` its operators, made of
`topology`, `tensors` and `memory`.
"""
