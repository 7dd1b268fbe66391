"""The rank's side of a hub on this host.

`hub_process`, `supervisor` and `child` start a hub and keep it running, `joined` joins one by its
address, `connection` talks to it.
"""
