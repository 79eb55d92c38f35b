// kafkajs: what contract.py describes.
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");

const { SHARE, PATIENCE_MS, bootstrap, topic, group, names, first, key, value, equal, step } = require("./contract.js");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });

async function withAdmin(run) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await run(admin);
  } finally {
    await admin.disconnect();
  }
}

async function createAndDelete(admin) {
  const made = `${topic}-made`;
  await admin.createTopics({ topics: [{ topic: made, numPartitions: 3 }], waitForLeaders: true });
  const { topics } = await admin.fetchTopicMetadata({ topics: [made] });
  equal(topics[0].partitions.length, 3);
  const { resources } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: made }] });
  equal(resources[0].errorCode, 0);
  await admin.deleteTopics({ topics: [made] });
}

async function produce(codec, from) {
  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: SHARE }, (_, at) => ({ key: key(from + at), value: value(from + at) }));
  await producer.send({ topic, acks: -1, compression: CODECS[codec], messages });
  await producer.disconnect();
}

// kafkajs has no consumer outside of a group.
async function take(member, from, to, commit) {
  const consumer = kafka.consumer({ groupId: member, maxWaitTimeInMs: 50 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let next = from;
  try {
    await new Promise((done, failed) => {
      const late = setTimeout(() => failed(new Error(`${next - from} of ${to - from} records came`)), PATIENCE_MS);
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ message }) => {
            try {
              equal([message.offset, message.key, message.value], [String(next), key(next), value(next)]);
              next += 1;
            } catch (failure) {
              failed(failure);
            }
            if (next === to) {
              clearTimeout(late);
              done();
            }
          },
        })
        .catch(failed);
    });
    if (commit) await consumer.commitOffsets([{ topic, partition: 0, offset: String(to) }]);
  } finally {
    await consumer.disconnect();
  }
}

async function main() {
  await step("admin", () => withAdmin(createAndDelete));
  for (const [at, codec] of names.entries()) await step(`produce ${codec}`, () => produce(codec, at * SHARE));
  await step("fetch", () => take(`${group}-none`, 0, first, false));
  await step("offsets", () =>
    withAdmin(async (admin) => {
      const [{ low, high }] = await admin.fetchTopicOffsets(topic);
      equal([low, high], ["0", String(first)]);
    }),
  );
  await step("commit", () =>
    withAdmin(async (admin) => {
      await admin.setOffsets({ groupId: `${group}-alone`, topic, partitions: [{ partition: 0, offset: "42" }] });
      const [{ partitions }] = await admin.fetchOffsets({ groupId: `${group}-alone`, topics: [topic] });
      equal(partitions[0].offset, "42");
    }),
  );
  await step("group", () => take(group, 0, first, true));
  await step("resume", async () => {
    await produce("none", first);
    await take(group, first, first + SHARE, true);
  });
}

main().then(() => process.exit(0));
