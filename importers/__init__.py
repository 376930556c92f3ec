"""Files of other systems as study files: a table of names per system, and four readers.

`tables` and what is under it are plain data that hints, `hpo knobs` and the documents read as
well; they know neither knobs nor files.
"""
