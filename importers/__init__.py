"""Files of other systems as study files: a table of names per system, and four readers.

`tables` and the modules it imports are plain data, without knobs or files: hints, `hpo knobs` and
the documents read them too.
"""
