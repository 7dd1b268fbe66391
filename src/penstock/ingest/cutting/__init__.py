"""Parts of a graph, straight from tables: the graph as a whole is nowhere.

It is done in three steps, which know nothing of each other but files:

    map      reads tables, numbers ends, sorts edges, and gives out the rows of each array of the
             whole graph by parts (`edges`, `nodes`), while it sums the array up (`sums`)
    shuffle  the rows of an array that a part gets are a file (`segments`)
    reduce   writes one part after the other: an array of it is what there is in its files, or
             follows from them (`part`)

`words` has what users say, `assign` says which part has each node, `build` does one step after the
other. The bytes are those of cutting the whole graph: `penstock.graph.partition`.
"""
