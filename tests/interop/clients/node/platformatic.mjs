// @platformatic/kafka: what contract.py describes; protocol=consumer takes the consumer protocol (KIP-848) for groups.
import { Admin, Consumer, Producer, ProduceAcks } from "@platformatic/kafka";

import contract from "./contract.js";

const { SHARE, PATIENCE_MS, bootstrap, topic, group, settings, names, first, key, value, equal, step } = contract;

const QUIET_MS = 300;
const common = { clientId: "platformatic", bootstrapBrokers: [bootstrap] };
const groupProtocol = settings.includes("protocol=consumer") ? "consumer" : "classic";

async function withClient(client, run) {
  try {
    return await run(client);
  } finally {
    await (client instanceof Consumer ? client.close(true) : client.close());  // true: with its streams
  }
}

async function createAndDelete(admin) {
  const made = `${topic}-made`;
  await admin.createTopics({ topics: [made], partitions: 3, replicas: 1 });
  const metadata = await admin.metadata({ topics: [made] });
  equal(metadata.topics.get(made).partitionsCount, 3);
  await admin.deleteTopics({ topics: [made] });
}

async function produce(codec, from) {
  await withClient(new Producer({ ...common, autocreateTopics: true, idempotent: true }), (producer) =>
    producer.send({
      acks: ProduceAcks.ALL,
      compression: codec,
      messages: Array.from({ length: SHARE }, (_, at) => ({ topic, key: key(from + at), value: value(from + at) })),
    }),
  );
}

const member = (groupId) => new Consumer({ ...common, groupId, groupProtocol, maxWaitTime: 50, autocommit: false });

async function take(consumer, from, to, options) {
  const stream = await consumer.consume({ topics: [topic], fallbackMode: "earliest", ...options });
  let next = from;
  let last;
  await new Promise((done, failed) => {
    let quiet;
    const late = setTimeout(() => failed(new Error(`${next - from} of ${to - from} records came`)), PATIENCE_MS);
    stream.on("error", failed);
    stream.on("data", (message) => {
      try {
        equal([message.offset, message.key, message.value ?? null], [next, key(next), value(next)]);
      } catch (failure) {
        failed(failure);
      }
      next += 1;
      last = message;
      if (next === to) {
        clearTimeout(late);
        quiet = setTimeout(done, QUIET_MS);
      } else if (next > to) {
        clearTimeout(quiet);
        failed(new Error("there are more records"));
      }
    });
  });
  if (options.mode === "committed") await last.commit();
  await stream.close();
}

await step("admin", () => withClient(new Admin(common), createAndDelete));
for (const [at, codec] of names.entries()) await step(`produce ${codec}`, () => produce(codec, at * SHARE));
await step("fetch", () =>
  withClient(member(`${group}-none`), (consumer) => take(consumer, 0, first, { mode: "earliest" })),
);
await step("offsets", () =>
  withClient(member(`${group}-none`), async (consumer) => {
    equal((await consumer.listOffsets({ topics: [topic], timestamp: -2n })).get(topic), [0]);
    equal((await consumer.listOffsets({ topics: [topic], timestamp: -1n })).get(topic), [first]);
  }),
);
await step("commit", () =>
  withClient(new Admin(common), async (admin) => {
    const groupId = `${group}-alone`;
    await admin.alterConsumerGroupOffsets({
      groupId,
      topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 42n }] }],
    });
    const [held] = await admin.listConsumerGroupOffsets({ groups: [groupId] });
    equal(held.topics[0].partitions[0].committedOffset, 42);
  }),
);
await step("group", () => withClient(member(group), (consumer) => take(consumer, 0, first, { mode: "committed" })));
await step("resume", async () => {
  await produce("none", first);
  await withClient(member(group), (consumer) => take(consumer, first, first + SHARE, { mode: "committed" }));
});
process.exit(0);
