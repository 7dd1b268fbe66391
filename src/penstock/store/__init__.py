"""A store: one graph in parts on several servers, sampled by whoever reads it.

`calls` are the few questions about a part, `answers` answers them. `servers` knows who holds which
part and asks any of them. `graph` is the graph that samplers see; `exchange` and `features` ask the
parts for its edges and rows. `cache` and `warming` keep rows that are read often.
"""
