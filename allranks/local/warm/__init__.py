"""Ranks that are forked from a process which has imported their framework already, and are like all others otherwise.

A rank with torch spends two seconds of processor on imports before its first line. ``template.py`` is the process that
has done so once, ``templates.py`` starts and asks such processes, and ``keeper.py`` keeps them between runs;
``programs.py`` and ``preloads.py`` say which ranks may be forked at all. What is not sure to be like a new interpreter
is started as one.
"""
