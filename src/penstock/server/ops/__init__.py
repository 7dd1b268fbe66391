"""What operators need.

`http`: status pages. `metrics`: the same for Prometheus. `statistics`, `process_stats`: snapshots
of the server and its process. `lifecycle`: the server's start and end. `malloc`: returning memory
to the system.
"""
