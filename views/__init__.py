"""What people see: tables, reports and the live view of a study.

commands  the verbs of the command line
terminal  the view of a running study, and the terminal itself
report    a study as one HTML page
charts    a study as pictures
the rest  tables and sentences (`*_text`, `formatting`), JSON and CSV (`documents`), PNG
(`pictures`), GIF and MP4 (`films`); all text is printed through `visible`
"""
