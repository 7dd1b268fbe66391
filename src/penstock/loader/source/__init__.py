"""Where a loader's batches come from: the user's data as a graph, inputs, hubs, servers."""
