"""Filters that outlive their process, for `streamdedup.open` and Scrapy: each in a directory, with a log beside it.

A change is in the filter at once, and in the log, on the disk, within a beat. Log N leads on from filter N. `kept` has
what a program calls, `journal` the thread that writes, `directory` the files and their lock, `log` the format.
"""
