"""The rank's side of a server on another host: as a hub's, over TCP instead of a unix socket."""
