"""What this machine could do, and what holds it back.

`facts` is what is looked at, plain data; `machine` and `torch_facts` read it. `findings` draws
conclusions from facts and figures. `measure` makes the figures, of a graph that `rmat` generates;
`moving` is its part that needs torch. `words` says all of it.

Only `measure`, `moving` and `rmat` import the native module: where it is missing, the doctor says
so. Torch is imported by `torch_facts` and `moving`, inside functions.
"""
