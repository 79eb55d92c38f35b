"""SQL over topics: DuckDB reads the records of topics as tables (extra `sql`).

sql.py      `ottla.sql`
session.py  the connection to DuckDB, in which the topics of a statement become views
topic.py    a topic when a statement begins: the offsets to read, and what its keys and values are
scan.py     the records of a topic as Arrow batches, as often as DuckDB asks
texts.py    keys and values as text
pruning.py  the offsets that a filter of DuckDB leaves to be read
reader.py   the client
"""
