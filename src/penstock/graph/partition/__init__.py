"""A graph in parts: `cutter` splits a graph, `format` and `partition` are a part on disk.

`book` has partition books, which say which part holds a node or an edge.
"""
