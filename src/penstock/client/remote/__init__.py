"""The rank's side of a server on another host: as a hub's, over ZeroMQ instead of a unix socket."""
