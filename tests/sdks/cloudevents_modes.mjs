// Sends usage with the CloudEvents SDK for JavaScript in its three modes: node cloudevents_modes.mjs URL TOKEN
// It is run in the folder whose node_modules has the SDK.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const { CloudEvent, HTTP, Mode, emitterFor } = createRequire(join(process.cwd(), "package.json"))("cloudevents");
const [url, token] = process.argv.slice(2);

async function send({ headers, body }) {
  const answer = await fetch(`${url}/v1/events`, {
    method: "POST", headers: { ...headers, authorization: `Bearer ${token}` }, body,
  });
  return [answer.status, await answer.json()];
}

async function expect(name, answer, accepted) {
  const found = await answer;
  console.log(name, JSON.stringify(found));
  assert.deepEqual(found, [202, { accepted, refused: [] }], name);
}

const subject = "kunde-é 7";
const event = (number, data, more) =>
  new CloudEvent({ id: String(number), source: "/js", type: "js.calls", subject, data, ...more });

// The SDK does not encode headers as the binding of CloudEvents to HTTP asks, and fetch sends them as Latin-1.
const encoded = { subject: encodeURIComponent(subject) };
const [status, refused] = await emitterFor(send, { mode: Mode.BINARY })(event(1, { units: 3 }));
console.log("binary, not encoded", status, refused.detail);
assert(status === 400 && refused.detail.includes("ce-subject is not UTF-8, percent-encode"));

for (let round = 0; round < 2; round += 1) { // The second time they are duplicates.
  await expect("binary", emitterFor(send, { mode: Mode.BINARY })(event(1, { units: 3 }, encoded)), 1);
  await expect("structured", emitterFor(send, { mode: Mode.STRUCTURED })(event(2, { units: "40" })), 1);
  const batch = [3, 4].map((number) => event(number, { units: 500 }).toJSON());
  const headers = { "content-type": "application/cloudevents-batch+json" };
  await expect("batch", send({ headers, body: JSON.stringify(batch) }), 2);
}
await expect("without data", send(HTTP.binary(event(5, undefined, encoded))), 1);
