"""Studies from elsewhere: sweeps, flag files and spaces of other systems become study files.

Each reader fills a `Draft`; a draft knows what was changed on the way and what was left out,
writes both into the file, and is held against the loader before anybody sees it.
"""
