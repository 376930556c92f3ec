"""The live page: all studies of a folder in a browser, while they run and after.

library, per_commit  studies, read at most once a commit and at a bounded rate
standing             what a study does now
parts, lanes_table   pieces of the page, the report's among them
both                 two studies side by side
documents            the pages around the pieces
guard                who may read
server               HTTP
"""
