"""The connection to DuckDB, in which the topics of a statement become views.

A view is made for each topic that a statement names, just before it runs, with the offsets of that moment:

    key, value          JSON if the first keys or values are JSON, NULL where one is not; otherwise text
    raw_key, raw_value  the bytes

DuckDB runs in UTC, fetches no extensions by itself, does not read Python variables as tables, and has a limit of memory,
beyond which it writes into a temporary directory that it removes when the connection is closed.
"""

import re
import tempfile
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.extras import install_command

if find_spec("duckdb") is None or find_spec("pyarrow") is None:
    raise ImportError(f"SQL over topics needs duckdb and pyarrow: {install_command('sql')}")

import duckdb

from ottla.client.config import BULK, ClientConfig
from ottla.client.errors import KafkaError
from ottla.query.errors import InvalidQuery
from ottla.query.reader import QueryReader
from ottla.query.scan import SCHEMA, TopicScan
from ottla.query.texts import Texts
from ottla.query.topic import samples, texts_of, topic_of
from ottla.schemas.registry import RegistryError, SchemaRegistry
from ottla.spelling import did_you_mean

if TYPE_CHECKING:
    from ottla.query.topic import Topic

__all__ = ["SCHEMA", "InvalidQuery", "Session", "quoted"]

_BARE_OFFSET: Final = re.compile(r'(?<![\w"])offset(?![\w"])', re.IGNORECASE)
_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


class Session:
    """Statements over the topics of one cluster, in one connection to DuckDB.

    config        configs of the client; records of open and aborted transactions are never read
    registry      schemas of keys and values
    memory_limit  most memory of DuckDB: "500MB", "2GB"
    scans         scans of the topics that were named so far, by view

    Raises InvalidQuery for a memory limit that DuckDB does not understand.
    """

    def __init__(
        self, config: Mapping[str, Any], registry: SchemaRegistry | None = None, memory_limit: str = "1GB"
    ) -> None:
        committed = {**config, "isolation.level": "read_committed"}
        self.config = ClientConfig(committed, defaults={**BULK, "client.id": "ottla-query"})
        self._registry = registry
        self.scans: dict[str, TopicScan] = {}
        spill = Path(tempfile.gettempdir()) / f"ottla-query-{uuid.uuid4().hex}"  # DuckDB makes it when it needs it
        limits = {"memory_limit": memory_limit, "temp_directory": str(spill)}
        try:
            self.connection: Any = duckdb.connect(config={**_SETTINGS, **limits})
        except duckdb.Error as error:
            raise InvalidQuery(f"memory limit {memory_limit}: {_first_line(error)}") from None
        self.connection.execute("SET TimeZone = 'UTC'")

    def relation(self, statement: str) -> Any:
        """Return the result of one statement, as a relation of DuckDB that is evaluated when it is read.

        None for a statement without a result, which has run. Raises InvalidQuery, KafkaError, RegistryError.
        """
        try:
            statements = self.connection.extract_statements(statement)
            if len(statements) != 1:
                raise InvalidQuery(f"a query is one statement, not {len(statements)}")
            self._bind(statement, strict=statements[0].type == duckdb.StatementType.SELECT)
            return self.connection.sql(statement)
        except duckdb.Error as error:
            raise self.explained(error) from None

    def explained(self, error: Exception) -> Exception:
        """Return the cause of an error of DuckDB: that of the scan which failed, or InvalidQuery."""
        for scan in self.scans.values():
            if isinstance(scan.failure, KafkaError | RegistryError):
                return scan.failure
        line = _first_line(error)
        if isinstance(error, duckdb.ParserException) and _BARE_OFFSET.search(str(error)):
            line += '; offset is a reserved word of DuckDB: write "offset", in double quotes'
        return InvalidQuery(line)

    def topic_names(self) -> list[str]:
        """Return the names of all topics. Raises KafkaError."""
        with QueryReader(self.config, {}) as reader:
            return reader.topic_names()

    def close(self) -> None:
        """Close the connection and remove its temporary files."""
        self.connection.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bind(self, statement: str, *, strict: bool) -> None:
        """Make the views of the topics that a statement names. Raises InvalidQuery, KafkaError, RegistryError.

        strict  refuse a name that is not a topic, for which DuckDB's error would suggest tables of its own
        """
        try:
            # A connection that has no views yet: DuckDB would name what an earlier view is made of.
            with self.connection.cursor() as other:
                tables: set[str] = other.get_table_names(statement) - self._own_tables()
        except duckdb.Error:
            # PIVOT is several statements, INSERT needs its table, a join the columns of both: any word may be a topic.
            tables = set()
            words = _words(statement) - self._own_tables()
        else:
            words = set()
        if not tables and not words:
            return
        with QueryReader(self.config, {}) as reader:
            known = reader.topic_names()
            folded = {name.lower() for name in known}
            tables |= {word for word in words if word.lower() in folded}
            for name, topic in sorted(_topics(tables, known, strict=strict).items()):
                self._make_view(reader, name, topic_of(reader, topic))

    def _own_tables(self) -> set[str]:
        """Return the tables and views that the user has made in this connection."""
        rows = self.connection.execute(
            "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        return {name for (name,) in rows} - self.scans.keys()

    def _make_view(self, reader: QueryReader, name: str, topic: "Topic") -> None:
        keys, values = Texts(topic.name, self._registry), Texts(topic.name, self._registry)
        some_keys, some_values = samples(reader, topic)
        json = {
            "key": self._are_json(texts_of(keys, some_keys)),
            "value": self._are_json(texts_of(values, some_values)),
        }
        columns = [
            f"TRY_CAST({column} AS JSON) AS {column}" if json.get(column) else f'"{column}"' for column in SCHEMA.names
        ]
        scan = TopicScan(self.config, topic, keys, values)
        source = quoted(f"records of {name}")
        self.connection.register(f"records of {name}", scan)  # a view, too
        self.connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {', '.join(columns)} FROM {source}"
        )
        self.scans[name] = scan
        self.scans[f"records of {name}"] = scan

    def _are_json(self, texts: list[str]) -> bool:
        """Return whether there are texts and all of them are JSON, as DuckDB reads it."""
        query = (
            "SELECT coalesce(bool_and(TRY_CAST(t AS JSON) IS NOT NULL), false) FROM (SELECT unnest($1::VARCHAR[]) AS t)"
        )
        return bool(self.connection.execute(query, [texts]).fetchall()[0][0])


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _topics(tables: set[str], known: list[str], *, strict: bool) -> dict[str, str]:
    """Return the topics of table names, exactly or but for upper and lower case; other names are left to DuckDB.

    Raises InvalidQuery for two names that DuckDB cannot tell apart, and with `strict` for one that is no topic and no file.
    """
    topics: dict[str, str] = {}
    for table in tables:
        if table in known:
            topics[table] = table
            continue
        near = [name for name in known if name.lower() == table.lower()]
        if len(near) == 1:
            topics[table] = near[0]
        elif near:
            raise InvalidQuery(f"no topic {table}; did you mean {' or '.join(near)}?")
        elif strict and not any(sign in table for sign in "./\\*"):
            raise InvalidQuery(f"no topic {table}{did_you_mean(table, known)}")
    by_fold: dict[str, str] = {}
    for topic in topics.values():
        other = by_fold.setdefault(topic.lower(), topic)
        if other != topic:
            raise InvalidQuery(f"{other} and {topic} differ only in case, which DuckDB ignores: query them one by one")
    return topics


def _words(statement: str) -> set[str]:
    """Return the tokens of a statement, without quotes."""
    starts = [start for start, _ in duckdb.tokenize(statement)]
    ends = [*starts[1:], len(statement)]
    return {statement[start:end].strip().strip('"') for start, end in zip(starts, ends, strict=True)}


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
