"""Statistics of loaders, and their live display.

`meter` counts, `verdict` says what that means, `watcher` is the thread that asks for statistics,
`picture` displays them.
"""
