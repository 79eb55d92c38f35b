// kafkajs with its registry client: register a schema of each kind, and write a value with each to a topic, which validates them.
const { Kafka, logLevel } = require("kafkajs");
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

const [bootstrap, url, topic] = process.argv.slice(2);
const schemas = [
  [SchemaType.AVRO, '{"type":"record","name":"Order","namespace":"n","fields":[{"name":"id","type":"long"}]}'],
  [SchemaType.JSON, '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'],
  [SchemaType.PROTOBUF, 'syntax = "proto3"; package n; message Order { int32 id = 1; }'],
];

async function run() {
  const registry = new SchemaRegistry({ host: url });
  const producer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 0 } }).producer();
  await producer.connect();
  const lines = [];
  for (const [type, schema] of schemas) {
    const subject = `${topic}-${type.toLowerCase()}-value`;
    const { id } = await registry.register({ type, schema }, { subject });
    const value = await registry.encode(id, { id: 7 });
    await producer.send({ topic: `${topic}-${type.toLowerCase()}`, messages: [{ value }] });
    const latest = await registry.getLatestSchemaId(subject);
    lines.push({ type, id, latest, decoded: Number((await registry.decode(value)).id) });
  }
  try {
    await producer.send({ topic: `${topic}-avro`, messages: [{ value: "not framed" }] });
    lines.push({ refused: null });
  } catch (failure) {
    lines.push({ refused: failure.message });
  }
  await producer.disconnect();
  console.log(JSON.stringify(lines));
}

run().then(
  () => process.exit(0),
  (failure) => {
    console.error(failure.message);
    process.exit(1);
  },
);
