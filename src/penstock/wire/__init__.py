"""The protocol between processes. It must not know who is at the other end of a connection.

`messages` has every message and `conversation` who may send it when; `requests`, `rpc_schema` and
`values` are for calls. `framing`, `sending`, `stream` (unix) and `tcp_stream` send messages over
the sockets of `transport`; `frames` and `payload` lay out arrays as aligned bytes.
"""
