// Sample data of everything that pages show: subjects near to a limit and over it, a receiver that fails, one that
// refuses alerts, an unknown mailbox, a subject without contact, refused events, mutes.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Daemon, Receivers, eventually } from "./daemon.mjs";

/** Number of subjects whose receiver refuses alerts: above the number from which an action has to be typed. */
export const TRIALS = 120;

export const startSample = async () => {
  const receivers = new Receivers();
  const [works, fails, refuses] = await Promise.all([
    receivers.webhook(200),
    receivers.webhook(503, "down for maintenance"),
    receivers.webhook(422, "unknown event type", { "webhook-delivery": "abort-message" }),
  ]);
  const daemon = await Daemon.start(await receivers.mail());
  const subjects = [
    { subject: "acme", plan: "team", name: "Acme", email: "ops@acme.example", webhook: `${works.url}/acme` },
    { subject: "globex", email: "it@globex.example", timezone: "Asia/Ho_Chi_Minh", locale: "vi" },
    { subject: "initech", plan: "team", webhook: `${fails.url}/initech` },
    { subject: "hooli", email: "nobody@hooli.example" },
    { subject: "umbrella", plan: "free" },
    { subject: "stark", plan: "team", webhook: `${works.url}/stark`, thresholds: [90, 100] },
    { subject: "wayne", email: "cfo@wayne.example", "limit:requests": "9000/day 100000/month" },
    { subject: "erased-js", email: "a@erased.example" },
    { subject: "erased-plain", email: "a@erased.example" },
    { subject: "an id with spaces/and \"quotes\" <b>", email: "x@example.com" },
  ];
  for (let number = 0; number < TRIALS; number++) {
    subjects.push({ subject: `trial-${String(number).padStart(4, "0")}`, webhook: `${refuses.url}/hook` });
  }
  const file = join(daemon.folder, "subjects.jsonl");
  await writeFile(file, subjects.map((subject) => JSON.stringify(subject)).join("\n"));
  await daemon.run("subject", "import", file);
  const used = [
    ["acme", 19500], ["acme", 870000, "tokens"], ["globex", 5400], ["initech", 11000], ["hooli", 4300],
    ["umbrella", 5000], ["stark", 18200], ["wayne", 8100], ["an id with spaces/and \"quotes\" <b>", 4100],
    ["of the future", -1], ["", 1],
  ].map(([subject, units, metric = "requests"]) => ({ subject, units, metric }));
  const trials = subjects.filter(({ webhook }) => webhook?.startsWith(refuses.url));
  await daemon.count([...used, ...trials.map(({ subject }) => ({ subject, units: 4000 }))]);
  await daemon.run("subject", "mute", "stark", "--for", "3d", "--reason", "moving to another region");
  await eventually("everything is counted and sent", async () => {
    const { sending, counting } = (await daemon.json("status").catch(({ stdout }) => [JSON.parse(stdout)]))[0];
    return counting.lag === 0 && sending.outbox === 0 && sending.dead >= TRIALS;
  });
  return { daemon, receivers, works, fails, refuses };
};
