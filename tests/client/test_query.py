"""`ottla query` and `ottla.sql`: topics as tables of DuckDB."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla import Admin, NewTopic, Producer
from ottla.cli.own.query_results import _interrupt_by_signals
from ottla.cli.own.query_shell import Shell
from ottla.schemas import AvroSerializer, SchemaRegistry

from .commands import Commands
from .conftest import Produce, fresh

duckdb = pytest.importorskip("duckdb", reason="the extra sql")
pytest.importorskip("pyarrow", reason="the extra sql")
query = pytest.importorskip("ottla.query.session", reason="the extra sql")

Sql = Callable[..., list[Any]]
ORDER = (
    '{"type": "record", "name": "order", "fields": [{"name": "n", "type": "int"}, {"name": "who", "type": "string"}]}'
)
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture
def session(bootstrap_servers: str) -> Iterator[Any]:
    with query.Session({"bootstrap.servers": bootstrap_servers}) as opened:
        yield opened


@pytest.fixture
def rows(session: Any) -> Sql:
    """rows(statement, topic): the statement with the quoted topic for {t}."""
    return lambda statement, topic="": session.relation(statement.format(t=f'"{topic}"')).fetchall()


@pytest.fixture
def send(bootstrap_servers: str) -> Iterator[Callable[..., None]]:
    """send(topic, value, ...): records that are there when it returns; `partition` is the first one."""
    with Producer(bootstrap_servers=bootstrap_servers) as producer:

        def sent(topic: str, *values: Any, **more: Any) -> None:
            for value in values:
                producer.produce(topic, value, **{"partition": 0, **more})
            assert producer.flush(30) == 0

        yield sent


def test_a_topic_has_its_records_as_rows(rows: Sql, send: Any, topic: str) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    send(topic, "v", key="k", timestamp=int(moment.timestamp() * 1000), headers=[("h", b"\xff"), ("n", None)])
    send(topic, None, partition=1)
    first, second = rows("FROM {t} ORDER BY partition", topic)
    headers = [{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}]
    assert first == (0, 0, moment, "k", "v", headers, b"k", b"v")
    assert (second[0], second[1], *second[3:]) == (1, 0, None, None, None, None, None)
    assert rows("SELECT timestamp::VARCHAR FROM {t} WHERE partition = 0", topic) == [("2026-01-02 03:04:05.678+00",)]
    assert [name for name, *_ in rows("DESCRIBE {t}", topic)] == query.SCHEMA.names


def test_times_are_utc_whatever_zone_the_machine_has(bootstrap_servers: str, send: Any, topic: str) -> None:
    send(topic, "v", timestamp=1_767_323_045_678)
    statement = (
        f"SELECT timestamp, timestamp = '2026-01-02 03:04:05.678' AS same, hour(timestamp) AS hour FROM \"{topic}\""
    )
    words = [
        sys.executable,
        "-m",
        "ottla",
        "query",
        "--bootstrap-server",
        bootstrap_servers,
        "--format",
        "csv",
        statement,
    ]
    environment = {**os.environ, "TZ": "Asia/Kathmandu"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "timestamp,same,hour\n2026-01-02 03:04:05.678+00,true,3\n"


@pytest.mark.parametrize(
    ("values", "kind", "shown"),
    [
        (['{"a": 1}', "[1]", "2", '"x"', "null"], "JSON", ['{"a": 1}', "[1]", "2", '"x"', "null"]),
        (["text", "{}"], "VARCHAR", ["text", "{}"]),
        ([None, "{}", None], "JSON", [None, "{}", None]),
        ([None, None], "VARCHAR", [None, None]),
        ([b"\xff\xfe", "{}"], "VARCHAR", ["\ufffd\ufffd", "{}"]),
        ([""], "VARCHAR", [""]),
        (["{}"] * 100 + ["text", b"\xff", "{"], "JSON", ["{}"] * 100 + [None] * 3),
        (["{}"] * 99 + ["text"], "VARCHAR", ["{}"] * 99 + ["text"]),
        ([b"\0\0\0\0\1rest", "x"], "VARCHAR", ["\0\0\0\0\1rest", "x"]),
    ],
)
def test_values_are_json_if_the_first_hundred_are(
    rows: Sql, send: Any, topic: str, values: list[Any], kind: str, shown: list[Any]
) -> None:
    for field in ("value", "key"):
        name = fresh()
        with_key = field == "key"
        for value in values:
            send(name, None if with_key else value, key=value if with_key else None)
        results = rows(f'SELECT {field}, typeof({field}), raw_{field} FROM {{t}} ORDER BY "offset"', name)
        assert [value for value, _, _ in results] == shown
        assert {kind for _, kind, _ in results} == {kind}
        assert [raw for _, _, raw in results] == [v.encode() if isinstance(v, str) else v for v in values]


def test_the_first_hundred_values_are_those_of_all_partitions(rows: Sql, send: Any, topic: str) -> None:
    send(topic, *["{}"] * 200)
    send(topic, *["{}"] * 49, "text", partition=1)
    assert rows("SELECT DISTINCT typeof(value) FROM {t}", topic) == [("VARCHAR",)]
    later = fresh()
    with_one_more = ["{}"] * 50 + ["text"]
    send(later, *["{}"] * 200)
    assert rows("SELECT DISTINCT typeof(value) FROM {t}", later) == [("JSON",)]
    send(later, *with_one_more)  # one partition: these are the records 201 to 251
    assert rows("SELECT DISTINCT typeof(value) FROM {t}", later) == [("JSON",)]


@pytest.mark.parametrize(
    "bad", [b"text", b"\xff", b"", None, b"{", b"\0", DEEP, b"\0\0\0\0\1", b"NaN", b'{"n": 1e999}']
)
def test_one_bad_record_never_fails_a_query(rows: Sql, send: Any, topic: str, bad: bytes | None) -> None:
    send(topic, *['{"n": 1}'] * 100, bad)
    assert rows("SELECT count(value->>'n'), count(value.n), count(*) FROM {t} WHERE (value->>'n') = '1'", topic) == [
        (100, 100, 100)
    ]
    assert rows('SELECT raw_value FROM {t} WHERE "offset" = 100', topic) == [(bad,)]


@pytest.mark.parametrize(
    ("where", "ranges", "count"),
    [
        ("true", [(0, 0, 100), (1, 0, 100)], 200),
        ("partition = 1", [(1, 0, 100)], 100),
        ("partition IN (1, 7)", [(1, 0, 100)], 100),
        ("partition = 7", [], 0),
        ('"offset" BETWEEN 10 AND 12', [(0, 10, 13), (1, 10, 13)], 6),
        ('partition = 0 AND "offset" >= 98', [(0, 98, 100)], 2),
        ("partition = 0 AND \"offset\" = 5 AND value = 'no'", [(0, 5, 6)], 0),
        ("timestamp >= '2020-01-01 00:01:30Z'", [(0, 90, 100), (1, 90, 100)], 20),
        ("timestamp > '2020-01-01 00:01:38Z' AND partition = 1", [(1, 98, 100)], 1),
        ("timestamp > '2031-01-01'", [], 0),
        ("timestamp < '2020-01-01 00:00:10Z'", [(0, 0, 100), (1, 0, 100)], 20),
        ('"offset" % 2 = 0', [(0, 0, 100), (1, 0, 100)], 100),
    ],
)
def test_predicates_decide_what_is_read(
    session: Any, bootstrap_servers: str, topic: str, where: str, ranges: list[tuple[int, int, int]], count: int
) -> None:
    begin = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp() * 1000)
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(100):
            for partition in (0, 1):
                producer.produce(topic, f"v{number}", partition=partition, timestamp=begin + 1000 * number)
    assert session.relation(f'SELECT count(*) FROM "{topic}" WHERE {where}').fetchall() == [(count,)]
    read = [(piece.partition.partition, piece.start, piece.end) for piece in session.scans[topic].ranges_read]
    assert read == ranges


def test_a_relation_reads_the_same_records_whenever_it_is_evaluated(
    bootstrap_servers: str, send: Any, topic: str
) -> None:
    send(topic, "a", "b")
    relation = ottla.sql(f'SELECT value FROM "{topic}"', bootstrap_servers=bootstrap_servers)
    send(topic, "c")
    assert relation.fetchall() == [("a",), ("b",)]
    assert relation.filter("value > 'a'").fetchall() == [("b",)]
    assert relation.to_arrow_table().num_rows == 2
    again = ottla.sql(f'SELECT count(*) FROM "{topic}"', {"bootstrap.servers": bootstrap_servers})
    assert again.fetchall() == [(3,)]


def test_records_of_open_and_aborted_transactions_are_not_read(rows: Sql, bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=fresh("x")) as producer:
        producer.init_transactions()
        for value, end in (("kept", producer.commit_transaction), ("gone", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            end()
        producer.begin_transaction()
        producer.produce(topic, "open", partition=0)
        producer.flush()
        begin = time.monotonic()
        assert rows("SELECT value FROM {t}", topic) == [("kept",)]
        assert time.monotonic() - begin < 30  # it does not wait for the end of what is open, which comes after a minute
        producer.abort_transaction()


def test_topics_join_each_other_and_files(rows: Sql, send: Any, topic: str, tmp_path: Path) -> None:
    other, names = fresh("with.dots"), tmp_path / "names.csv"
    send(topic, '{"who": 1}', '{"who": 2}')
    send(other, "one", key="1")
    names.write_text("id,name\n2,two\n")
    joined = rows(
        f"SELECT o.value, n.name FROM {{t}} t LEFT JOIN \"{other}\" o ON o.key::INT = (t.value->>'who')::INT "
        f"LEFT JOIN '{names}' n ON n.id = (t.value->>'who')::INT ORDER BY t.\"offset\"",
        topic,
    )
    assert joined == [("one", None), (None, "two")]


def test_names_of_topics_ignore_case_like_other_identifiers(rows: Sql, send: Any, admin: Admin) -> None:
    name = fresh("Case")
    send(name, "v")
    assert rows("SELECT value FROM {t}", name.lower()) == [("v",)]
    admin.create_topics([NewTopic(name.upper(), 1, 1)]).check()
    with pytest.raises(query.InvalidQuery, match=f"no topic {name.lower()}; did you mean"):
        rows("SELECT value FROM {t}", name.lower())
    assert rows("SELECT value FROM {t}", name) == [("v",)]
    with pytest.raises(query.InvalidQuery, match="differ only in case"):
        rows(f'SELECT * FROM {{t}}, "{name.upper()}"', name)


def test_values_with_a_schema_are_unpacked(bootstrap_servers: str, topic: str, tmp_path: Path, send: Any) -> None:
    pytest.importorskip("fastavro", reason="the extra schema")
    serializer = AvroSerializer(SchemaRegistry(location=str(tmp_path)), ORDER)
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer=serializer) as producer:
        for number in range(3):
            producer.produce(topic, {"n": number, "who": "me"}, partition=0)
    send(topic, b"\0\0\0\0\x63of no schema", '{"n": 3}', "text", b"\0\0\0\0\1\xff")

    def total(**more: Any) -> Any:
        statement = f'SELECT typeof(any_value(value)), sum((value->>\'n\')::INT) FROM "{topic}" WHERE "offset" < 3'
        return ottla.sql(statement, bootstrap_servers=bootstrap_servers, **more).fetchall()

    assert total(schema_registry=str(tmp_path))[0][0] == "VARCHAR"  # bad ones are among the first hundred
    good = fresh()
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer=serializer) as producer:
        for number in range(100):
            producer.produce(good, {"n": number, "who": "me"}, partition=0)
    send(good, b"\0\0\0\0\x63of no schema", '{"n": 3}', "text", b"\0\0\0\0\1\xff", None)
    relation = ottla.sql(
        f"SELECT typeof(any_value(value)), sum((value->>'n')::INT), count(value), count(*) FROM \"{good}\"",
        bootstrap_servers=bootstrap_servers,
        schema_registry=str(tmp_path),
    )
    assert relation.fetchall() == [("JSON", 4953, 101, 105)]


def test_a_registry_that_does_not_answer_is_an_error(commands: Commands, topic: str, send: Any) -> None:
    send(topic, b"\0\0\0\0\1rest")
    message = commands.refused("query", f'FROM "{topic}"', "--schema-registry", "http://127.0.0.1:1")
    assert "127.0.0.1:1" in message


def test_a_result_is_written_in_each_format(commands: Commands, topic: str, send: Any, tmp_path: Path) -> None:
    send(topic, '{"a": "\u00e4"}', key="k,1")
    statement = f'SELECT key, value, "offset", NULL AS nothing, [1, 2] AS list, key FROM "{topic}"'
    assert commands.run("query", statement).stdout.splitlines() == [
        "key  value       offset  nothing  list    key",
        'k,1  {"a": "ä"}  0       NULL     [1, 2]  k,1',
    ]
    lines = commands.run("query", statement, "--format", "csv").stdout
    assert lines == 'key,value,offset,nothing,list,key\n"k,1","{""a"": ""\u00e4""}",0,,"[1, 2]","k,1"\n'
    document = json.loads(commands.run("query", statement, "--json").stdout)
    assert document == {
        "key": "k,1",
        "value": {"a": "\u00e4"},
        "offset": 0,
        "nothing": None,
        "list": [1, 2],
        "key_1": "k,1",
    }
    for form in ("csv", "json", "parquet", "txt"):
        file = tmp_path / f"result.{form}"
        assert commands.run("query", f'SELECT key, value FROM "{topic}"', "--output", str(file)).stdout == ""
        assert file.stat().st_size > 0
    assert duckdb.connect().execute(f"SELECT key FROM '{tmp_path}/result.parquet'").fetchall() == [("k,1",)]


def test_a_query_that_fails_leaves_the_file_as_it_was(
    commands: Commands, topic: str, send: Any, tmp_path: Path
) -> None:
    send(topic, "1", "x")
    file = tmp_path / "result.csv"
    file.write_text("before")
    for form in ("csv", "json", "parquet"):
        message = commands.refused(
            "query", f'SELECT value::INT FROM "{topic}"', "--output", str(file), "--format", form
        )
        assert message.startswith("Conversion Error")
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["result.csv"]
    assert "No such file" in commands.refused("query", "SELECT 1", "--output", str(tmp_path / "no" / "x.csv"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT offset FROM {t}", 'write "offset", in double quotes'),
        ("SELECT value FROM {t} WHERE offset > 3", 'write "offset", in double quotes'),
        ("SELEC 1", "syntax error at or near"),
        ('SELECT "offset" FROM {t} WHERE partition = = 1', "syntax error at or near"),
        ("SELECT nothing FROM {t}", 'column "nothing" not found'),
        ("SELECT 1; SELECT 2", "a query is one statement, not 2"),
        ("", "a query is one statement, not 0"),
        ("FROM nowhere_at_all", "no topic nowhere_at_all"),
        ("FROM 'nowhere.csv'", "nowhere.csv"),
        ("SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')", "requires the extension httpfs"),
        ("SELECT error('boom')", "boom"),
    ],
)
def test_an_error_is_one_line(commands: Commands, topic: str, statement: str, message: str) -> None:
    assert message in commands.refused("query", statement.format(t=f'"{topic}"'))


def test_options_that_contradict_each_other_are_refused(commands: Commands) -> None:
    assert "--output" in commands.misused("query", "SELECT 1", "--format", "parquet")
    assert "cannot be combined" in commands.misused("query", "SELECT 1", "--format", "csv", "--json")
    assert "memory limit much" in commands.refused("query", "SELECT 1", "--memory-limit", "much")


def test_a_session_keeps_tables_and_reads_topics_again(rows: Sql, send: Any, topic: str) -> None:
    send(topic, "a")
    rows("CREATE TABLE main_table AS SELECT value FROM {t}", topic)
    rows("CREATE TEMP TABLE own AS SELECT value FROM {t}", topic)
    send(topic, "b")
    for table in ("main_table", "own"):
        assert rows(f"SELECT count(*) FROM {{t}} JOIN {table} USING (value)", topic) == [(1,)]
        rows(f"INSERT INTO {table} SELECT value FROM {{t}} WHERE value = 'b'", topic)
        assert rows(f"FROM {table} ORDER BY 1") == [("a",), ("b",)]
    assert rows("SELECT count(*) FROM {t}", topic) == [(2,)]
    assert rows("PIVOT {t} ON value USING count(*) GROUP BY partition", topic) == [(0, 1, 1)]


def test_more_than_the_memory_limit_goes_to_temporary_files_or_is_an_error(commands: Commands) -> None:
    big = "SELECT count(*) FROM (SELECT md5(range::VARCHAR) m FROM range(3000000) ORDER BY m OFFSET 1)"
    assert commands.output("query", big, "--memory-limit", "60MB").split()[-1] == "2999999"
    message = commands.refused("query", "SELECT len(list(range)) FROM range(100000000)", "--memory-limit", "60MB")
    assert message.startswith("Out of Memory Error")


def test_deleted_records_are_left_out(session: Any, admin: Admin, topic: str, produce: Produce) -> None:
    produce(topic, 10)
    relation = session.relation(f'SELECT min("offset"), count(*) FROM "{topic}"')
    admin.delete_records({ottla.TopicPartition(topic, 0): 4}).check()
    assert relation.fetchall() == [(4, 6)]


def test_a_topic_that_is_gone_while_it_is_read_is_named(
    commands: Commands, session: Any, admin: Admin, topic: str, produce: Produce
) -> None:
    produce(topic, 10)
    relation = session.relation(f'SELECT count(*) FROM "{topic}"')
    admin.delete_topics([topic]).check()
    with pytest.raises(duckdb.Error) as failed:
        relation.fetchall()
    assert topic in str(session.explained(failed.value))


def _control(terminal: int) -> None:
    """Make a terminal that of this process, which Ctrl-C there then interrupts."""
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


class Terminal:
    """A shell of `ottla query` on a terminal of its own."""

    def __init__(self, bootstrap_servers: str, state: Path) -> None:
        self.own, terminal = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "dumb"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "query", "--bootstrap-server", bootstrap_servers],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: _control(terminal),
        )
        os.close(terminal)

    def types(self, text: str, until: str) -> str:
        """Type a text, and return the output up to and including `until`."""
        os.write(self.own, text.encode())
        seen = ""
        deadline = time.monotonic() + 60
        while until not in seen:
            assert time.monotonic() < deadline, seen
            if not select.select([self.own], [], [], 5)[0]:
                if text == "\x03":  # readline does not notice one that comes when it is about to wait: type it again
                    os.write(self.own, text.encode())
                continue
            seen += os.read(self.own, 4096).decode()
        return seen

    def close(self) -> int:
        try:
            return self._process.wait(30)
        finally:
            self._process.kill()
            os.close(self.own)


def test_the_shell_runs_statements_completes_names_and_keeps_a_history(
    bootstrap_servers: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(topic, 5)
    terminal = Terminal(bootstrap_servers, tmp_path)
    terminal.types("", until="ottla> ")
    terminal.types("SELECT count(*)\n", until="...> ")
    assert "\r\n5\r\n" in terminal.types(f'  FROM "{topic[:8]}\t;\n', until="ottla> ")
    assert "no topic nowhere" in terminal.types("FROM nowhere;\n", until="ottla> ")
    assert f"\n{topic}\r\n" in terminal.types(".topics\n", until="ottla> ")
    os.write(terminal.own, b"SELECT sum(a.range * b.range) FROM range(9000000) a, range(9000000) b;\n")
    time.sleep(1)
    assert "interrupted" in terminal.types("\x03", until="ottla> ")
    terminal.types("\x03", until="ottla> ")
    assert "\r\n7\r\n" in terminal.types("SELECT 3 + 4;\n", until="ottla> ")
    terminal.types(".quit\n", until="")
    assert terminal.close() == 0
    history = tmp_path / "ottla" / "query_history"
    assert "FROM nowhere;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_the_shell_completes_topics_columns_and_words_of_sql(session: Any, topic: str, send: Any) -> None:
    shell = Shell(session, "table")
    other = fresh("Complete.me")
    send(other, "v")
    assert shell.matches(topic[:6]) == [f'"{topic}"']  # it has a hyphen
    assert shell.matches("complete.") == shell.matches('"COMPLETE.') == [f'"{other}"']
    assert shell.matches("off") == ['"offset"']
    assert shell.matches("raw_") == ["raw_key", "raw_value"]
    assert shell.matches("wher") == ["WHERE"]
    assert [shell.complete("raw_", state) for state in range(3)] == ["raw_key", "raw_value", None]


SIGNALLED_AT_ITS_START = """
import os, sys
from ottla.query import session
opened, number = session.Session.__init__, int(sys.argv.pop())
def open_session(*arguments):
    os.kill(os.getpid(), number)
    opened(*arguments)
session.Session.__init__ = open_session
from ottla.cli.entry import run
run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_duckdb_starts_leaves_the_statement_out(
    bootstrap_servers: str, topic: str, produce: Produce, number: signal.Signals
) -> None:
    produce(topic, 3000)
    statement = f'SELECT count(*) FROM "{topic}" a, "{topic}" b, "{topic}" c, "{topic}" d'
    command = [sys.executable, "-c", SIGNALLED_AT_ITS_START, "query", statement]
    completed = subprocess.run(
        [*command, "--bootstrap-server", bootstrap_servers, str(int(number))],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (128 + number, "", "")


def test_a_statement_is_interrupted_until_it_has_ended() -> None:
    """DuckDB forgets an interrupt that comes while a statement begins."""
    interrupts: list[float] = []
    session = SimpleNamespace(connection=SimpleNamespace(interrupt=lambda: interrupts.append(time.monotonic())))
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with _interrupt_by_signals(session):  # type: ignore[arg-type]  # (all that it takes of a session)
            os.kill(os.getpid(), signal.SIGTERM)
            end = time.monotonic() + 10
            while len(interrupts) < 3 and time.monotonic() < end:
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(interrupts) >= 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_statement_that_computes(
    bootstrap_servers: str, topic: str, produce: Produce, number: signal.Signals
) -> None:
    """DuckDB runs no Python code within a step, so that a handler of Python would wait for its end."""
    produce(topic, 3000)
    statement = f'SELECT count(*) FROM "{topic}" a, "{topic}" b, "{topic}" c, "{topic}" d'
    run = [sys.executable, "-c", "from ottla.cli.entry import run; run()", "query", statement]
    with subprocess.Popen(
        [*run, "--bootstrap-server", bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(4)  # until it computes
        process.send_signal(number)
        try:
            output, errors = process.communicate(timeout=30)  # the statement takes hours
        finally:
            process.kill()
    assert (process.returncode, output, errors) == (128 + number, "", "")
