"""The rank's side of Penstock: it knows nothing of torch.

`hub` starts, supervises and joins hubs, `channel` reads batches in order, `remote` does the same
over TCP, `dist` answers queries about a graph. The modules here serve all of them; `backend` is the
public class.
"""
