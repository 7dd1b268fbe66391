"""A graph in parts: `assignment` says which part gets a node, `cutter` what each part has.

`kaminpar` and `streaming` assign nodes so that few edges are cut, all types in one `index_space`.
`partition` writes the parts and `sources` makes their arrays meanwhile; `within` is a part alone.
`book` has partition books, which say which part holds a node or an edge.
"""
