"""Parts from tables, built by many tasks on many hosts.

Each step of `penstock.ingest.cutting` is cut where files are cut: by runs of a table's files, by
ranges of nodes, by parts. Tasks know of each other only what they are told, and hand on files in a
folder that all hosts share.

    runner   who performs tasks: told what to do, it answers in order (Ray: `penstock.cluster.tasks`)
    task     one task: what all of them know, and its folder
    nodes    numbers nodes, and gives out what they have
    edges    looks up ends, decides which rows are edges, and gives these out by ranges of nodes
    sort     sorts a range of nodes, and gives out its rows by parts
    joined   what tasks have made, side by side, as one; `sums` likewise of checksums
    build    the order of it all, the only place that knows all of it

The bytes are those of `penstock.ingest.cutting`, whose functions do the work.
"""
