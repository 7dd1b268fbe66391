"""`DistServer` and what it is made of.

`dataset`, `outline`: the served graph. `queries`, `labels`: answers about its data. `backends`,
`channels`, `handles`, `samplers`: sampling for ranks. `seeds`, `input_registration`: the inputs of
channels. `rpc`: calls that come from ranks.
"""
