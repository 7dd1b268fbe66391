"""The processes that sample.

`worker`, `batch_maker`, `heartbeat`, `restraints`: what runs in a worker. `pool`, `child`,
`process`: how the hub starts, watches and ends workers. `arena`, `slot_maps`: shared memory.
`ended`, `autopsy`, `oom`, `stacks`, `stderr`, `libraries`: why a worker died. `recipe`: making a
batch again. `limits`, `cgroups`: how many workers fit.
"""
