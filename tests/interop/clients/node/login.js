// kafkajs: log in by the security of the second argument, write a record to the topic of the third, and read it in a group.
const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, text, topic] = process.argv.slice(2);
const given = JSON.parse(text);
const options = { brokers: [bootstrap], logLevel: logLevel.ERROR };
if (given.protocol.endsWith("SSL")) {
  options.ssl = { ca: [fs.readFileSync(given.ca)] };
  if (given.certificate) {
    const pem = fs.readFileSync(given.certificate);
    options.ssl = { ...options.ssl, cert: pem, key: pem };
  }
}
if (given.mechanism === "OAUTHBEARER") {
  options.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: given.token }) };
} else if (given.mechanism) {
  options.sasl = { mechanism: given.mechanism.toLowerCase(), username: given.user, password: given.password };
}

async function run() {
  const kafka = new Kafka(options);
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: "v" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("no record came")), 60000).unref();
    consumer.run({ eachMessage: async ({ message }) => resolve(console.log(message.value.toString())) });
  });
  await consumer.disconnect();
}

run().then(
  () => process.exit(0),
  (failure) => {
    console.error(failure.message);
    process.exit(1);
  },
);
