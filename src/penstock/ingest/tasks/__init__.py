"""Parts from tables, built by many tasks on many hosts.

Each step of `penstock.ingest.cutting` is cut where files are cut: by runs of a table's files, by
ranges of nodes, by parts. Tasks know of each other only what they are told, and hand on files in a
folder that all hosts share.

    runner      who performs tasks, and answers in order (on Ray: `penstock.cluster.tasks`)
    task        one task: what all of them know, and its folder
    nodes       tasks that number nodes, and give out what they have
    edges       tasks that look up ends, and decide which rows are edges
    spread      tasks that give out edges by ranges of nodes, and their attributes by parts
    sort        tasks that sort a range of nodes, and that write a part
    joined      what tasks have made, side by side, as one; `sums` likewise of checksums
    steps       has the tasks of a step performed, and notes what has been given out
    edge_steps  the steps for a table of edges
    plan        which tasks there are, and what cannot be built so
    build       the order of all steps

The bytes are those of `penstock.ingest.cutting`, whose functions do the work.
"""
