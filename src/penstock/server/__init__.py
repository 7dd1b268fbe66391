"""Serves one graph to ranks on other hosts. Knows neither torch nor how to sample.

`transport`: event loop, sessions, relays, access control. `dist`: `DistServer`, its dataset and its
calls. `ops`: HTTP pages, metrics, the life of the server process. `serving` puts them together;
`limits` has the budgets that all of them share.
"""
