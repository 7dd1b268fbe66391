"""The hub: one process per graph and host, which runs the scheduler and carries out its decisions.

`process` is its entry point and `loop` its event loop over the shared `state`. `listener` accepts
ranks, `rank_messages` and `worker_messages` handle what they send, and `instructions` carries out
what the scheduler decides. It must not decide itself who is served next.
"""
