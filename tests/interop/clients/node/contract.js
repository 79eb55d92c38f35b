// What contract.py describes, as far as it is the same for every client of this package: arguments, records, and the report of a
// step.
const SHARE = 100;
const PATIENCE_MS = 30000;

const [bootstrap, topic, group, codecs, ...settings] = process.argv.slice(2);
const names = codecs.split(",");
const first = SHARE * names.length;

const key = (number) => Buffer.from(`key ${number}`);

function value(number) {
  if (number % 10 === 9) return null;
  const tail = Buffer.from(Array.from({ length: number % SHARE }, (_, index) => (number + 31 * index) & 0xff));
  return Buffer.concat([Buffer.from(`value ${number} `), tail]);
}

const text = (value) => JSON.stringify(value, (_, part) => (typeof part === "bigint" ? Number(part) : part));

function equal(found, wanted) {
  if (text(found) !== text(wanted)) throw new Error(`${text(found)}, not ${text(wanted)}`);
}

async function step(name, run) {
  try {
    await run();
    console.log(JSON.stringify({ step: name, result: "pass", why: "" }));
  } catch (failure) {
    console.error(failure);
    console.log(JSON.stringify({ step: name, result: "fail", why: String(failure.message) }));
  }
}

module.exports = { SHARE, PATIENCE_MS, bootstrap, topic, group, settings, names, first, key, value, equal, step };
