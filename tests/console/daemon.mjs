// A daemon with an embedded Redis, receivers and sample data, on free ports and in a folder of its own.
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const WAIT_MAX_MS = 30_000;
const POLL_MS = 50;
export const BINARY = process.env.QUOTABELL_BINARY;
export const TOKENS = { ops: "admin-0123456789abcdef", viewer: "read-0123456789abcdef" };

/** The first value of `probe` that is truthy. */
export const eventually = async (what, probe) => {
  const end = Date.now() + WAIT_MAX_MS;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${WAIT_MAX_MS / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
};

const listening = async (server, port = 0) => {
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return server.address().port;
};

const freePort = async () => {
  const server = createServer(), port = await listening(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
};

/** Receivers of webhooks that answer this status; and a mail server that knows no mailbox `nobody`. */
export class Receivers {
  servers = [];
  /** The mails that were taken. */
  mails = [];

  /** A site with one page. */
  async site(html) {
    const headers = { "content-type": "text/html" };
    const server = createHttpServer((_, response) => response.writeHead(200, headers).end(html()));
    this.servers.push(server);
    return `http://127.0.0.1:${await listening(server)}`;
  }

  async webhook(status, text = "", headers = {}) {
    const answer = { status, headers };
    const server = createHttpServer((request, response) => {
      request.resume().on("end", () => response.writeHead(answer.status, answer.headers).end(text));
    });
    this.servers.push(server);
    return { answer, url: `http://127.0.0.1:${await listening(server)}` };
  }

  async mail() {
    const server = createServer((socket) => {
      let isData = false;
      socket.setEncoding("utf8").on("error", () => {});
      socket.write("220 mail.example.com\r\n");
      socket.on("data", (text) => {
        if (isData && !text.endsWith("\r\n.\r\n")) return;
        if (isData) this.mails.push(text);
        const command = isData ? "." : text.slice(0, 4).toUpperCase();
        isData = command === "DATA";
        const unknown = command === "RCPT" && text.includes("<nobody");
        const told = { DATA: "354 go on", QUIT: "221 bye", ".": "250 2.0.0 queued" }[command] ?? "250 mail.example.com";
        socket.write((unknown ? "550 5.1.1 no such mailbox" : told) + "\r\n");
        if (command === "QUIT") socket.end();
      });
    });
    this.servers.push(server);
    return listening(server);
  }

  close() {
    for (const server of this.servers) server.close();
  }
}

export class Daemon {
  /** With these origins of sites that may show the portal in a frame. */
  static async start(smtpPort, origins = []) {
    const daemon = new Daemon();
    daemon.folder = await mkdtemp(join(tmpdir(), "quotabell-console-"));
    const file = async (name, text) => {
      const path = join(daemon.folder, name);
      await writeFile(path, text);
      return path;
    };
    const tokens = Object.entries(TOKENS).map(async ([name, token]) =>
      `{ name = "${name}", file = "${await file(name, token)}", scopes = ["${token.split("-")[0]}"] }`);
    const [port, console, http] = await Promise.all([freePort(), freePort(), freePort()]);
    const config = `
[redis]
data_dir = "${daemon.folder}/data"
embedded_port = ${port}
[http]
listen = "127.0.0.1:${http}"
public_url = "http://127.0.0.1:${http}"
tokens = [${(await Promise.all(tokens)).join(", ")}]
[console]
listen = "127.0.0.1:${console}"
[portal]
origins = ${JSON.stringify(origins)}
name = "Example API"
color = "#0b5fff"
[plans.free]
limits = { requests = 5000 }
thresholds = [80, 100]
[plans.team]
limits = { requests = ["20000/day", "400000/month"], tokens = 1000000 }
thresholds = [50, 80, 100]
[webhook]
allow_http = true
allow_private_networks = true
[email]
smtp_url = "smtp://127.0.0.1:${smtpPort}"
unknown_mailbox_after = "0s"
[retry]
first = "1s"
`;
    const path = await file("quotabell.toml", config);
    daemon.env = { PATH: process.env.PATH, QUOTABELL_CONFIG: path };
    daemon.url = `http://127.0.0.1:${console}/`;
    daemon.api = `http://127.0.0.1:${http}/`;
    daemon.log = "";
    daemon.process = spawn(BINARY, ["run"], { env: daemon.env, stdio: ["ignore", "ignore", "pipe"] });
    // It must not outlive a test that fails.
    process.on("exit", () => daemon.process.kill());
    daemon.ended = new Promise((resolve) => daemon.process.on("exit", resolve));
    daemon.process.stderr.setEncoding("utf8").on("data", (text) => (daemon.log += text));
    await eventually("the daemon is ready", async () => {
      if (daemon.process.exitCode !== null) throw new Error(daemon.log);
      return fetch(`${daemon.api}readyz`).then((answer) => answer.ok, () => false);
    });
    return daemon;
  }

  /** Runs a command on the same Redis. */
  async run(...command) {
    const { stdout } = await promisify(execFile)(BINARY, command, { env: this.env });
    return stdout;
  }

  async json(...command) {
    return (await this.run(...command, "--json")).trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
  }

  /** Calls the API. */
  post(path, body) {
    const headers = { Authorization: `Bearer ${TOKENS.ops}`, "Content-Type": "application/json" };
    return fetch(`${this.api}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  }

  /** Sends events. Wrong ones are refused, and kept. */
  async count(events) {
    await this.post("v1/events", events);
  }

  /** A link with which the customer opens the portal of a subject. */
  async portal(subject, asked) {
    const { url } = await (await this.post(`v1/subjects/${encodeURIComponent(subject)}/portal`, asked)).json();
    return url;
  }

  /** Stops its Redis, as if it hung, or lets it go on. */
  async letRedisAnswer(answers) {
    const tasks = `/proc/${this.process.pid}/task`;
    const of = (task) => readFile(`${tasks}/${task}/children`, "utf8");
    const children = (await Promise.all((await readdir(tasks)).map(of))).join(" ").split(" ").filter(Boolean);
    if (children.length !== 1) throw new Error(`the daemon has the children ${children}`);
    process.kill(Number(children[0]), answers ? "SIGCONT" : "SIGSTOP");
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async remove() {
    if (this.process.exitCode === null) await this.stop();
    await rm(this.folder, { recursive: true });
  }
}
