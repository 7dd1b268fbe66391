"""A store: one graph in parts on several servers, sampled by whoever reads it.

`calls` are the few questions that the owner of a part answers. `servers` knows who holds which part
and asks any of them. `graph` is the graph that samplers see.
"""
