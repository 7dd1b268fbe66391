"""The scheduler and the arithmetic of epochs: pure Python, without NumPy, I/O or a clock.

`plan` and `slices` compute which batches and inputs a rank takes. `scheduler` is a state machine
that takes `events` and returns instructions; `channel`, `epoch`, `slots`, `fair`, `worker_group`,
`worker_lifecycle`, `restarts` and `timers` hold its state.
"""
