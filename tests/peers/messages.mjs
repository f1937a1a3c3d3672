// Reads what a receiver got, one JSON object a line, and has it judged by the libraries of others. Says what each thinks, one line each.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.env.QUOTABELL_PEERS + "/messages/node/");
const { Webhook: StandardWebhook } = require("standardwebhooks");
const { Webhook: SvixWebhook } = require("svix");
const { HTTP } = require("cloudevents");

// Svix signs alike, under the names that it had before the standard.
const svixNames = (headers) =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.replace("webhook-", "svix-"), value]));

function signed({ secret, body, headers }) {
  for (const [library, given] of [[StandardWebhook, headers], [SvixWebhook, svixNames(headers)]]) {
    new library(secret).verify(body, given);
    let refused = false;
    try {
      new library(secret).verify(body + " ", given);
    } catch {
      refused = true;
    }
    if (!refused) throw new Error(`${library.name} takes another body`);
  }
  return "";
}

function cloudevent(message) {
  signed(message);
  const event = HTTP.toEvent({ headers: message.headers, body: message.body });
  if (!event.validate()) throw new Error("no CloudEvent");
  const { data, id, source, specversion, subject, type } = event;
  return JSON.stringify({ data, id, source, specversion, subject, type });
}

const judges = { signed, cloudevent };

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  try {
    console.log("ok", judges[message.kind](message));
  } catch (error) {
    console.log("refused", String(error));
  }
}
