"""`DistServer` and what it is made of.

`outline`: what ranks are told about the served graph. `backends`, `channels`, `handles`,
`samplers`: sampling for ranks. `seeds`, `input_registration`: the inputs of channels. `rpc`: calls
that come from ranks. Queries about data are answered by `penstock.client.dist`, and what samplers
ask of a part by `penstock.store.answers`.
"""
