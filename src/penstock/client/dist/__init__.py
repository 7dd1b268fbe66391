"""Answers to queries about a graph, whoever asks: a server's, for its part, and a store's.

`dataset` is what is asked about, `queries` answers, `labels` reads the labels of anchors.
"""
