"""The server's side of the TCP connections.

`connections`, `access`, `rate_limits`: who may connect. `session`, `rank_messages`,
`registrations`, `relay`: connected ranks. `event_loop`, `poller`, `threads`, `tls_writers`: what
runs them. `authority` makes certificates.
"""
