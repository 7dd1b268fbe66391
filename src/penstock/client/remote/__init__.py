"""The rank's side of a server on another host: what `client.hub` is for a hub, over TCP.

`dist_server` makes calls, `hub`, `session` and `remote_graph` serve channels and loaders;
`same_host` takes the hub's unix socket where it can. `store_observer` looks at all servers of a
store. Connections and calls are in `penstock.rpc`.
"""
