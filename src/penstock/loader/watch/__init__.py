"""Statistics of loaders, and their live display.

`meter` counts, `watcher` is the thread that asks for statistics, `picture` displays them.
"""
