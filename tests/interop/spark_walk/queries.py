"""Random reads and writes, most of them right; what Ottla refuses on purpose is left out (docs/differences.md).

Topics that are read: t1 (3 partitions, the last one empty), t2 (1 partition, with an aborted transaction), t3 (2 partitions,
whose first records are deleted), t4 (empty). `sizes` are their end offsets when a query is drawn.
"""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

T0: Final = 1_700_000_000_000
"""Timestamp of the first record in ms; the next ones are a second apart."""
STEP_MS: Final = 1000
Sizes = Mapping[str, Sequence[int]]


class Read(NamedTuple):
    """Read of topics: options of the source, and conditions of SQL that the rows must meet."""

    options: dict[str, str]
    condition: str | None = None

    def __str__(self) -> str:
        return f"read {self.options}" + (f" where {self.condition}" if self.condition else "")


class Step(NamedTuple):
    """Run of a stream with the records that came before it.

    sent     records that are appended to each topic
    grown    topic that has got a partition, or ""
    deleted  topic whose partition 0 has lost its records, or ""
    """

    options: dict[str, str]
    sent: dict[str, int]
    grown: str = ""
    deleted: str = ""


class Write(NamedTuple):
    """Write of rows: expressions of SQL over `id` that are the columns, and options of the sink; `{topic}` is the topic."""

    rows: int
    columns: list[str]
    options: dict[str, str]

    def __str__(self) -> str:
        return f"write {self.rows} rows {self.columns} {self.options}"


class _Dice:
    def __init__(self, dice: random.Random, sizes: Sizes) -> None:
        self._dice = dice
        self._sizes = sizes

    def one(self, *choices: str) -> str:
        return self._dice.choice(choices)

    def chance(self, percent: int) -> bool:
        return self._dice.randrange(100) < percent

    def number(self, first: int, last: int) -> int:
        return self._dice.randint(first, last)

    def topics(self) -> list[str]:
        count = self.number(1, 2)
        return self._dice.sample(sorted(self._sizes), count)

    def selection(self) -> tuple[dict[str, str], dict[str, list[int]]]:
        """Return the option that selects topics, and the partitions that it selects."""
        kind = self.one("subscribe", "subscribe", "subscribePattern", "assign")
        topics = self.topics()
        every = {name: list(range(len(self._sizes[name]))) for name in topics}
        if kind == "subscribe":
            separator = self.one(",", ",", ", ", ",,")
            unknown = ["unknown"] if self.chance(2) else []
            return {kind: separator.join([*topics, *unknown])}, every
        if kind == "subscribePattern":
            pattern = self.one("t[12]", "t1|t3", "t.", ".*", "t4", "x.*", "1", "t1|t3")
            chosen = {"t[12]": ["t1", "t2"], "t1|t3": ["t1", "t3"], "t4": ["t4"], "x.*": [], "1": ["t1"]}
            named = chosen.get(pattern, sorted(self._sizes))
            return {kind: pattern}, {name: list(range(len(self._sizes[name]))) for name in named}
        if self.chance(6):
            return {kind: self.one("[]", "x", '{"t1":[]}', '{"t1":["0"]}', '{"t1":0}', '{"t1":[0,0]}')}, {}
        some = {
            name: sorted(self._dice.sample(numbers, self.number(1, len(numbers)))) for name, numbers in every.items()
        }
        return {kind: json.dumps(some)}, some

    def offsets(self, selected: Mapping[str, list[int]], *special: int) -> str:
        """JSON with an offset for each partition, sometimes for one too many or too few."""
        offsets = {
            name: {
                str(number): self._dice.choice([*special, *special, self.number(0, self._sizes[name][number])])
                for number in numbers
            }
            for name, numbers in selected.items()
        }
        self._disturb(offsets, self.number(0, 50))
        return json.dumps(offsets)

    def times(self, selected: Mapping[str, list[int]]) -> str:
        times = {name: {str(number): self.time() for number in numbers} for name, numbers in selected.items()}
        self._disturb(times, T0)
        return json.dumps(times)

    def time(self) -> int:
        return self._dice.choice([T0 + self.number(-5, 45) * STEP_MS, 0, T0 - 1, T0 + 10**9])

    def _disturb(self, offsets: dict[str, dict[str, int]], value: int) -> None:
        if self.chance(95) or not offsets:
            return
        name = self._dice.choice(sorted(offsets))
        if self.chance(30):
            del offsets[name]
        elif self.chance(30):
            offsets["t4" if name != "t4" else "t1"] = {"0": value}
        elif self.chance(50):
            offsets[name]["7"] = value
        else:
            offsets[name].popitem()

    def start(self, selected: Mapping[str, list[int]], *, stream: bool) -> dict[str, str]:
        options: dict[str, str] = {}
        if self.chance(30):
            end = self.one("latest", "Latest") if stream or self.chance(10) else "earliest"
            options["startingOffsets"] = self.one("earliest", "EARLIEST", end, "x" if self.chance(10) else "earliest")
        elif self.chance(40):
            special = (-2, -1) if stream or self.chance(10) else (-2,)
            options["startingOffsets"] = self.offsets(selected, *special)
        if self.chance(20):
            options["startingTimestamp"] = self.one(str(self.time()), str(self.time()), "x" if self.chance(9) else "0")
        elif self.chance(20):
            options["startingOffsetsByTimestamp"] = self.times(selected)
        if self.chance(25):
            options["startingOffsetsByTimestampStrategy"] = self.one(
                "error", "latest", "LATEST", "x" if self.chance(9) else "latest"
            )
        return options

    def end(self, selected: Mapping[str, list[int]]) -> dict[str, str]:
        options: dict[str, str] = {}
        if self.chance(15):
            options["endingOffsets"] = self.one("latest", "LATEST", "earliest" if self.chance(20) else "latest")
        elif self.chance(35) and selected:
            special = (-1, -2) if self.chance(4) else (-1,)
            options["endingOffsets"] = self.offsets(selected, *special)
        if self.chance(15):
            options["endingTimestamp"] = str(self.time())
        elif self.chance(15) and selected:
            options["endingOffsetsByTimestamp"] = self.times(selected)
        return options

    def others(self) -> dict[str, str]:
        drawn = {
            "includeHeaders": self.one("true", "TRUE", "false", "x" if self.chance(9) else "true"),
            "failOnDataLoss": self.one("true", "false", "False"),
            "minPartitions": self.one("1", "2", "5", "50", self.one("0", "-1", "x", "1.5") if self.chance(9) else "3"),
            "maxRecordsPerPartition": self.one("1", "7", "1000", self.one("0", "-1", "x") if self.chance(9) else "9"),
            "groupIdPrefix": "prefix",
            "kafka.group.id": f"group-{self.number(0, 10**9)}",  # the connector keeps the consumer of a group with its configs
            "kafka.isolation.level": self.one("read_committed", "read_uncommitted"),
            "kafka.max.poll.records": self.one("1", "500"),
            "kafka.max.partition.fetch.bytes": self.one("100", "1000000"),
            "kafka.client.id": "walk",
            "kafkaConsumer.pollTimeoutMs": "30000",
        }
        chosen = {name: value for name, value in drawn.items() if self.chance(12)}
        # Ottla's default skips aborted records, as docs/differences.md says.
        quickly = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
        return {"kafka.isolation.level": "read_committed", **quickly, **chosen}

    def condition(self) -> str | None:
        if self.chance(50):
            return None
        terms = [self._term() for _ in range(self.number(1, 3))]
        text = terms[0]
        for term in terms[1:]:
            text = f"{text} {self.one('AND', 'AND', 'OR')} {term}"
        return text

    def _term(self) -> str:
        number, other = self.number(-1, 3), self.number(0, 40)
        moment = f"timestamp_millis({T0 + self.number(-3, 40) * STEP_MS + self._dice.choice([0, 0, 1])})"
        compare = self.one("=", "<", "<=", ">", ">=", "<>", "<=>")
        term = self.one(
            f"partition {compare} {number}",
            f"partition IN ({number}, {number + 1})",
            f"{number} {compare} partition",
            f"offset {compare} {other}",
            f"offset BETWEEN {other - 5} AND {other + 5}",
            f"offset IN ({other}, {other + 3}, NULL)",
            f"offset > {other - 0.5}",
            f"offset + 1 > {other}",
            f"timestamp {compare} {moment}",
            f"timestamp >= {moment}",
            f"timestamp IN ({moment})",
            f"topic {compare} '{self.one('t1', 't2', 't9')}'",
            f"topic LIKE '{self.one('t%', '%1', 't1')}'",
            "topic IN ('t1', 't3')",
            "key IS NOT NULL",
            "value IS NULL",
            "offset IS NULL",
            "partition IS NOT NULL",
            f"partition > offset - {other}",
            "timestampType = 0",
        )
        return f"NOT ({term})" if self.chance(15) else term


def draw_read(dice: random.Random, sizes: Sizes) -> Read:
    """Draw a read of a batch."""
    drawn = _Dice(dice, sizes)
    selection, selected = drawn.selection()
    options = {**selection, **drawn.start(selected, stream=False), **drawn.end(selected), **drawn.others()}
    if drawn.chance(2):
        options["subscribe"] = "t1"
    return Read(options, drawn.condition())


def draw_stream(dice: random.Random, sizes: Sizes) -> list[Step]:
    """Draw the runs of one stream."""
    drawn = _Dice(dice, sizes)
    selection, selected = drawn.selection()
    fixed = {**selection, **drawn.start(selected, stream=True), **drawn.others()}
    steps = []
    for turn in range(drawn.number(1, 3)):
        limits: dict[str, str] = {}
        if drawn.chance(60):
            limits["maxOffsetsPerTrigger"] = drawn.one("1", "5", "9", "20", "1000", "0" if drawn.chance(5) else "30")
        if drawn.chance(15):
            limits["minOffsetsPerTrigger"] = drawn.one("1", "5", "50")
            limits["maxTriggerDelay"] = drawn.one("10m", "1s", "0s")
        sent = {name: drawn.number(0, 6) for name in drawn.topics()} if turn else {}
        grown = drawn.one("t1", "t2", "t4") if turn and drawn.chance(8) else ""
        deleted = drawn.one("t1", "t3") if turn and drawn.chance(8) else ""
        if turn and "subscribe" in fixed and drawn.chance(10):
            fixed = {**fixed, "subscribe": ",".join(drawn.topics())}
        steps.append(Step({**fixed, **limits}, sent, grown, deleted))
    return steps


def draw_write(dice: random.Random) -> Write:
    """Draw a write of a batch."""
    drawn = _Dice(dice, {})
    columns = [
        drawn.one(
            "concat('v', id) AS value",
            "encode(concat('v', id), 'utf-8') AS value",
            "if(id % 3 = 0, NULL, concat('v', id)) AS value",
            "concat('v', id) AS VALUE",
            "concat('v', id) AS value",
            drawn.one("id AS value", "CAST(NULL AS string) AS value", "NULL AS value", "struct(id) AS value", "id"),
        )
    ]
    if drawn.chance(60):
        columns.append(
            drawn.one(
                "concat('k', id % 5) AS key",
                "encode(concat('k', id % 5), 'utf-8') AS key",
                "if(id % 2 = 0, NULL, concat('k', id)) AS key",
                "'' AS key",
                "id AS key" if drawn.chance(20) else "concat('k', id) AS Key",
            )
        )
    if drawn.chance(35):
        columns.append(
            drawn.one(
                "array(named_struct('key', 'h', 'value', encode(concat('x', id), 'utf-8'))) AS headers",
                "if(id % 2 = 0, NULL, array(named_struct('key', 'h', 'value', encode('x', 'utf-8')))) AS headers",
                "array(named_struct('key', 'h', 'value', NULL), named_struct('key', 'h', 'value', x'00')) AS headers",
                "CAST(array() AS array<struct<key:string,value:binary>>) AS headers",
                "array('x') AS headers" if drawn.chance(20) else "NULL AS headers2",
                "array(named_struct('key', CAST(NULL AS string), 'value', x'00')) AS headers"
                if drawn.chance(30)
                else "1 AS other",
            )
        )
    if drawn.chance(35):
        columns.append(
            drawn.one(
                "CAST(id % 3 AS int) AS partition",
                "if(id % 2 = 0, NULL, CAST(1 AS int)) AS partition",
                "0 AS partition" if drawn.chance(70) else "CAST(id + 2 AS int) AS partition",
                "0 AS partition" if drawn.chance(70) else drawn.one("-1 AS partition", "id AS partition"),
            )
        )
    options = {"kafka.max.block.ms": "3000"}  # for partitions that do not exist
    if drawn.chance(80):
        options["topic"] = "{topic}"
    if drawn.chance(35) or "topic" not in options:
        columns.append(
            drawn.one(
                "'{topic}' AS topic",
                "'{topic}' AS topic",
                drawn.one(
                    "CAST(NULL AS string) AS topic", "if(id = 3, NULL, '{topic}') AS topic", "1 AS topic", "1 AS other2"
                ),
            )
        )
    for name, values in {
        "includeHeaders": ("true", "false"),
        "kafka.compression.type": ("gzip", "zstd", "none", "lz4", "snappy"),
        "kafka.acks": ("all", "1", "0"),
        "kafka.linger.ms": ("0", "20"),
        "kafka.batch.size": ("1", "100000"),
        "kafka.client.id": ("walk",),
        "kafka.enable.idempotence": ("true", "false"),
    }.items():
        if drawn.chance(12):
            options[name] = drawn.one(*values)
    dice.shuffle(columns)
    return Write(drawn.number(0, 12), columns, options)
