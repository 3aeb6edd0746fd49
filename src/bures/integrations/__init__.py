"""Bridges to libraries that `bures` does not need: each is imported only when asked for.

`bures.integrations.dask`, `bures.integrations.lightning`, `bures.integrations.skada` and
`bures.integrations.torchmetrics` say which extra is missing where one is.
"""
