"""Sink `ottla-delta`: rows of a batch or a stream are appended to a Delta table, exactly once.

    source.py      the data source that Spark registers   options.py  parsing of options
    sink.py        writers, and messages of tasks         columns.py  columns of rows and of a table
    files.py       Parquet files of a task                statistics.py  statistics of a file
    table.py       creation, schema and commits of a table

Executors write Parquet files; the driver appends all files of a batch in one commit of the table's log, which makes them
visible, together with the id of the query and the number of the batch (an application transaction of Delta's protocol).
"""
