"""Table profiles measured from logs of ids: counts in one pass and bounded memory, whatever holds the data.

`sources` read ids, `engines` count them, `profile` turns the counts into the columns of a table profile.
"""
