"""Calls to servers over the wire: below workers, which may call servers, too.

`endpoint`: an address and its credentials. `link`, `io_thread`, `connection`: one connection and
the thread that serves it. `rpc_client`: calls of many threads over one connection. `server`: calls
to one server, which may be lost and come back.
"""
