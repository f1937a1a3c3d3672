// Calls a daemon with the types that openapi-typescript generates, through openapi-fetch: `node call.js URL TOKEN`.
//
// tsc checks this file against the types, so a type that the document promises and the client lacks fails before the
// daemon is called.

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./quotabell.js";

const [baseUrl, token] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
const alice = { path: { id: "alice" } };

/** The body of a successful answer. */
function body<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  assert.ok(answer.data !== undefined, `${answer.response.url}: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

const ready = await client.GET("/readyz", { parseAs: "text" });
assert.equal(body(ready), "ready\n");

const settings: components["schemas"]["SubjectSettings"] = {
  plan: "free",
  limits: { requests: ["50/hour", "100/day"] },
  thresholds: [80],
};
const subject = body(await client.PUT("/v1/subjects/{id}", { params: alice, body: settings }));
assert.deepEqual(subject.limits, settings.limits);
assert.deepEqual(body(await client.GET("/v1/subjects/{id}", { params: alice })), subject);
assert.equal(body(await client.GET("/v1/subjects")).subjects.length, 1);

const allowed = body(await client.POST("/v1/check", { body: { subject: "alice", metric: "requests", units: 10, record: true } }));
assert.ok(allowed.allowed && allowed.recorded === true && allowed.judged === undefined);
assert.deepEqual(allowed.limits.map(({ window, limit }) => [window, limit]), [["hour", 50], ["day", 100]]);
const refused = await client.POST("/v1/check", { body: { subject: "alice", metric: "requests", units: 101, record: false } });
assert.equal(refused.response.status, 429);
assert.ok(refused.error !== undefined && "violated-policies" in refused.error);
assert.deepEqual([refused.error.fits, refused.error["violated-policies"]], [false, ["rate", "hour", "day"]]);

const wrong = await client.GET("/v1/subjects/{id}", { params: alice, headers: { authorization: "Bearer wrong" } });
assert.deepEqual([wrong.error?.status, wrong.error?.title], [401, "Unauthorized"]);

const added = body(
  await client.POST("/v1/subjects/{id}/contacts", {
    params: alice,
    body: { channel: "webhook", url: "https://hooks.example.com/quota", thresholds: [80, 100] },
  }),
);
assert.ok(added.verified === false && added.secret?.startsWith("whsec_"));
const email = await client.POST("/v1/subjects/{id}/contacts", {
  params: alice,
  body: { channel: "email", address: "no address" },
});
assert.equal(email.response.status, 400);
const contact = { path: { id: "alice", contact: added.id } };
const narrowed = await client.PUT("/v1/subjects/{id}/contacts/{contact}", { params: contact, body: { metrics: ["requests"] } });
assert.deepEqual([body(narrowed).metrics, body(narrowed).thresholds], [["requests"], undefined]);
body(await client.PUT("/v1/subjects/{id}/contacts/{contact}/mute", { params: contact, body: { reason: "moving" } }));
const { contacts } = body(await client.GET("/v1/subjects/{id}/contacts", { params: alice }));
assert.deepEqual([contacts[0]?.muted, contacts[0]?.muted_reason, contacts[0]?.secret], [true, "moving", "***"]);

const { deliveries } = body(await client.GET("/v1/deliveries", { params: { query: { subject: "alice" } } }));
const delivery = { path: { id: deliveries[0]?.id ?? "" } };
const detail = body(await client.GET("/v1/deliveries/{id}", { params: delivery }));
assert.deepEqual([detail.type, detail.contact_id, detail.explanation.length > 0], ["verification", added.id, true]);

const muted = await client.PUT("/v1/subjects/{id}/mute", {
  params: { ...alice, query: { metric: "requests" } },
  body: { for: "2h" },
});
assert.ok(body(muted).mute.until !== null);
assert.equal(body(await client.GET("/v1/subjects/{id}/usage", { params: alice })).plan, "free");
assert.equal(body(await client.GET("/v1/subjects/{id}/history", { params: alice })).subject, "alice");
assert.equal(body(await client.GET("/v1/top")).metric, "requests");

const removed = await client.DELETE("/v1/subjects/{id}/contacts/{contact}", { params: contact });
assert.equal(removed.response.status, 204);
assert.ok(body(await client.DELETE("/v1/subjects/{id}", { params: alice })).removed.settings > 0);
console.log("TypeScript: every call was answered as the document says");
